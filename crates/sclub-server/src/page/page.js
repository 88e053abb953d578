"use strict";

// What both pages share is in `sclub`; the dashboard starts where there is a map to draw.
const sclub = (() => {
  const KEY = "sclub-key";
  const THEME = "sclub-theme";
  const THIN = "\u202f";

  // Storage can be switched off in the browser: then nothing is remembered.
  function stored(storage, name) {
    try { return window[storage].getItem(name); } catch { return null; }
  }

  function store(storage, name, value) {
    try {
      if (value === null) window[storage].removeItem(name);
      else window[storage].setItem(name, value);
    } catch { /* kept for this page only */ }
  }

  let currentKey = stored("sessionStorage", KEY);

  function setKey(value) {
    currentKey = value || null;
    store("sessionStorage", KEY, currentKey);
  }

  function headers(more = {}) {
    return currentKey ? { ...more, Authorization: `Bearer ${currentKey}` } : more;
  }

  class ApiError extends Error {
    constructor(status, code, message) {
      super(message);
      this.status = status;
      this.code = code;
    }

    get refused() { return this.status === 401 || this.status === 403; }
  }

  async function failure(response) {
    const body = await response.json().catch(() => null);
    const error = body?.error;
    return new ApiError(response.status, error?.code ?? "", error?.message ?? `the server answered ${response.status}`);
  }

  async function get(path) {
    const response = await fetch(path, { headers: headers({ Accept: "application/json" }), signal: AbortSignal.timeout(15000) });
    if (!response.ok) throw await failure(response);
    return response.json();
  }

  function append(element, children) {
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false) element.append(child);
    }
    return element;
  }

  function assign(element, attributes) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") element.addEventListener(name, value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    return element;
  }

  function el(tag, attributes = {}, ...children) {
    return append(assign(document.createElement(tag), attributes), children);
  }

  function svg(tag, attributes = {}, ...children) {
    return append(assign(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes), children);
  }

  function grouped(digits) {
    return digits.replace(/\B(?=(\d{3})+$)/g, THIN);
  }

  function whole(value) {
    if (!Number.isFinite(value)) return "–";
    return (value < 0 ? "−" : "") + grouped(Math.abs(Math.round(value)).toFixed(0));
  }

  function decimal(value, digits) {
    if (!Number.isFinite(value)) return "–";
    const [before, after] = Math.abs(value).toFixed(digits).split(".");
    const zero = !/[1-9]/.test(before + (after ?? ""));
    return (value < 0 && !zero ? "−" : "") + grouped(before) + (after ? `.${after}` : "");
  }

  // A number to so many digits.
  function precise(value, digits) {
    if (!Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size >= 1000) return whole(value);
    if (size > 0 && size < 1e-5) {
      const [mantissa, power] = value.toExponential(Math.min(digits - 1, 1)).split("e");
      return `${mantissa.replace("-", "−")} × 10^${power.replace("-", "−")}`;
    }
    const rounded = Number(value.toPrecision(digits));
    const places = size === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    return decimal(rounded, Math.min(places, 12));
  }

  // The same without trailing noughts.
  function short(value, digits = 3) {
    return precise(value, digits).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  }

  // Two numbers that are compared, with as many digits as tell them apart.
  function told(a, b) {
    for (let digits = 2; digits <= 8; digits += 1) {
      const texts = [precise(a, digits), precise(b, digits)];
      if (texts[0] !== texts[1] && (digits > 2 || Math.abs(a - b) > 0.1 * Math.abs(b))) return texts;
    }
    return [short(a), short(b)];
  }

  function count(n, one, many = `${one}s`) {
    return `${whole(n)} ${n === 1 ? one : many}`;
  }

  function lasting(seconds) {
    if (seconds < 90) return `${whole(seconds)} s`;
    if (seconds < 90 * 60) return `${whole(seconds / 60)} min`;
    if (seconds < 36 * 3600) return `${whole(seconds / 3600)} h`;
    return `${whole(seconds / 86400)} d`;
  }

  function applyTheme(choice) {
    if (choice) document.documentElement.dataset.theme = choice;
    else delete document.documentElement.dataset.theme;
  }

  const asked = new URLSearchParams(location.search).get("theme");
  applyTheme(["light", "dark"].includes(asked) ? asked : stored("localStorage", THEME));

  function themeSwitch(button) {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
    const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      const next = dark() ? "light" : "dark";
      applyTheme(next);
      // The system's own choice is followed again as soon as it is the one wanted.
      const own = (next === "dark") === system.matches;
      store("localStorage", THEME, own ? null : next);
      if (own) applyTheme(null);
      label();
    });
    system.addEventListener("change", label);
    label();
  }

  function copyButton(text) {
    const button = el("button", { type: "button", "aria-label": `Copy: ${text}` }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select and copy";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    return button;
  }

  return Object.freeze({
    key: () => currentKey, setKey, headers, ApiError, failure, get, el, svg, whole, decimal, short, told, count, lasting, themeSwitch, copyButton,
  });
})();

// Where the points of the map lie: the plane in which the estimates differ most.
const plane = (() => {
  const ITERATIONS = 200;
  const TURN = (3 * Math.PI) / 180;

  const dot = (a, b) => {
    let sum = 0;
    for (let i = 0; i < a.length; i += 1) sum += a[i] * b[i];
    return sum;
  };

  const combined = (a, u, b, v) => Float64Array.from(u, (x, i) => a * x + b * v[i]);

  function unit(v) {
    const length = Math.sqrt(dot(v, v));
    return length > 1e-150 ? v.map((x) => x / length) : null;
  }

  function centred(rows, weights) {
    const dim = rows[0].length;
    const total = weights.reduce((sum, w) => sum + w, 0);
    const mean = new Float64Array(dim);
    rows.forEach((row, n) => row.forEach((x, i) => { mean[i] += (weights[n] / total) * x; }));
    return rows.map((row) => Float64Array.from(row, (x, i) => x - mean[i]));
  }

  // The weighted covariance times a vector, without the matrix itself.
  function times(rows, weights, v) {
    const result = new Float64Array(v.length);
    rows.forEach((row, n) => {
      const part = weights[n] * dot(row, v);
      for (let i = 0; i < v.length; i += 1) result[i] += part * row[i];
    });
    return result;
  }

  // A unit vector at a right angle to `first`, near `wanted` if that can be.
  function across(first, wanted) {
    const dim = first.length;
    for (let axis = -1; axis < dim; axis += 1) {
      const start = axis < 0 ? wanted : Float64Array.from(first, (_, i) => (i === axis ? 1 : 0));
      const rest = start && combined(1, start, -dot(first, start), first);
      if (rest && dot(rest, rest) > 1e-20 * dot(start, start)) return unit(rest);
    }
    return new Float64Array(dim);
  }

  function startOf(dim, former) {
    if (former && former[0].length === dim) return former;
    const first = unit(Float64Array.from({ length: dim }, (_, i) => Math.cos(1 + 2.3 * i)));
    return [first, across(first, Float64Array.from({ length: dim }, (_, i) => Math.sin(2 + 3.1 * i)))];
  }

  // Both leading directions by power iteration on the pair, started from the former ones.
  function leading(rows, weights, former) {
    let [u, v] = startOf(rows[0].length, former);
    for (let step = 0; step < ITERATIONS; step += 1) {
      const first = unit(times(rows, weights, u)) ?? u;
      const second = across(first, times(rows, weights, v));
      const moved = 2 - Math.abs(dot(first, u)) - Math.abs(dot(second, v));
      [u, v] = [first, second];
      if (moved < 1e-10) break;
    }
    const [su, sv] = [times(rows, weights, u), times(rows, weights, v)];
    const angle = 0.5 * Math.atan2(2 * dot(u, sv), dot(u, su) - dot(v, sv));
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    return [combined(c, u, s, v), combined(-s, u, c, v)];
  }

  // The same plane, turned (and mirrored if need be) to how it lay in the former frame, then back to its own
  // axes by a few degrees a frame: nothing jumps, and the widest direction ends up level.
  function steadied([u, v], former) {
    if (!former || former[0].length !== u.length) return [u, v];
    const [a, b] = former;
    let [m11, m12, m21, m22] = [dot(u, a), dot(u, b), dot(v, a), dot(v, b)];
    let second = v;
    if (m11 * m22 - m12 * m21 < 0) {
      second = v.map((x) => -x);
      [m21, m22] = [-m21, -m22];
    }
    let angle = Math.atan2(m21 - m12, m11 + m22);
    const level = Math.round(angle / Math.PI) * Math.PI;
    angle += Math.max(-TURN, Math.min(TURN, level - angle));
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    return [combined(c, u, s, second), combined(-s, u, c, second)];
  }

  function project(rows, weights, former) {
    const middle = centred(rows, weights);
    const total = weights.reduce((sum, w) => sum + w, 0);
    const variance = middle.reduce((sum, row, n) => sum + (weights[n] / total) * dot(row, row), 0);
    const basis = steadied(leading(middle, weights, former), former);
    const along = (axis) => middle.reduce((sum, row, n) => sum + (weights[n] / total) * dot(row, axis) ** 2, 0);
    const shares = variance > 1e-20 ? basis.map((axis) => along(axis) / variance) : null;
    return { basis, shares, points: rows.map((row) => basis.map((axis) => dot(row, axis))) };
  }

  return { project };
})();

function dashboard() {
  const { el, svg, whole, decimal, short, told, count, lasting } = sclub;
  const $ = (id) => document.getElementById(id);

  const DRAWN = 500;
  const LISTED = 200;
  const KEPT_MS = 10 * 60 * 1000;
  const SMOOTH_S = 15;
  const POLL_MS = 2000;
  const SILENCE_MS = 10000;
  const FRESH_MS = 10000;
  const PLACES = 6;
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  const world = {
    state: null, clusters: [], total: 0, latest: null, clock: 0, seconds: [],
    joined: new Map(), bornOf: new Map(), dirty: true, seen: "",
  };
  const now = () => Date.now() + world.clock;
  // Whether users belong to clusters by probability.
  const isSoft = () => world.state?.policy === "sclub-soft";

  function ago(ms) {
    const seconds = Math.max(0, (now() - ms) / 1000);
    return seconds < 2 ? "just now" : `${lasting(Math.floor(seconds))} ago`;
  }

  // How long ago something was, kept true by `age`.
  function since(ms) {
    const date = new Date(ms);
    return el("time", { "data-at": ms, datetime: date.toISOString(), title: date.toLocaleString() }, ago(ms));
  }

  function age() {
    for (const time of document.querySelectorAll("time[data-at]")) {
      const text = ago(Number(time.dataset.at));
      if (time.textContent !== text) time.textContent = text;
    }
  }

  function idOf(text) {
    return text.length > 24 ? el("bdi", { class: "id", title: text }, text) : el("bdi", {}, text);
  }

  const userLink = (id) => el("a", { href: `#user/${encodeURIComponent(id)}` }, idOf(id));
  const clusterLink = (label, text = `cluster ${label}`) => el("a", { href: `#cluster/${label}` }, text);

  function apart(comparison, words) {
    if (!comparison) return [];
    const [distance, threshold] = told(comparison.distance, comparison.threshold);
    return words(distance, threshold);
  }

  function whySplit(change) {
    const alone = change.users === 1 && change.user;
    const what = { estimates: "estimate", frequencies: "frequency" }[change.why?.reason];
    if (!what) return [];
    const many = { estimate: "estimates", frequency: "frequencies" }[what];
    return apart(change.why[change.why.reason], (d, t) => (
      alone ? `: her ${what} is ${d} away, ${t} is allowed` : `: the ${many} are ${d} apart, ${t} is allowed`));
  }

  function whyMerge(change) {
    const why = change.why ?? {};
    if (why.reason === "connected") return [": ", change.user ? userLink(change.user) : "a newcomer", " is connected to both"];
    const parts = ["estimates", "frequencies"].filter((what) => why[what])
      .map((what) => apart(why[what], (d, t) => `${what} ${d} apart (${t} allowed)`));
    return parts.length ? `: ${parts.join(", ")}` : [];
  }

  // A split or merge as a sentence, with links.
  function sentence(change) {
    if (change.kind === "merge") {
      return [clusterLink(change.gone), " joined ", clusterLink(change.kept, String(change.kept)), whyMerge(change)];
    }
    const who = change.users === 1
      ? [change.user ? userLink(change.user) : "someone"]
      : [count(change.users ?? 0, "user")];
    const served = change.users !== 1 && change.user ? [" when ", userLink(change.user), " was served"] : [];
    return [who, " left ", clusterLink(change.from), " for ", clusterLink(change.into, String(change.into)), served, whySplit(change)];
  }

  function measure(kind, name, comparison) {
    if (!comparison) return null;
    const { distance, threshold } = comparison;
    const top = 1.15 * Math.max(distance, threshold, 1e-300);
    const fill = el("i");
    fill.style.width = `${(100 * distance) / top}%`;
    const limit = el("b");
    limit.style.left = `${(100 * threshold) / top}%`;
    const [d, t] = told(distance, threshold);
    return el("div", { class: `measure ${kind}` },
      el("div", { class: "track", role: "img", "aria-label": `${name}: distance ${d}, allowed ${t}` }, fill, limit),
      el("p", {}, `${name}: ${d} apart, ${t} allowed (the mark)`));
  }

  function whyBlock(change, otherwise) {
    if (!change) return el("p", { class: "muted" }, otherwise);
    const why = change.why ?? {};
    return el("div", { class: "why" },
      el("p", {}, sentence(change), el("span", { class: "muted" }, " (", since(change.at), `, round ${whole(change.round)})`)),
      measure(change.kind, "Estimates", why.estimates),
      measure(change.kind, "Frequencies", why.frequencies));
  }

  // New contents for a card that may hold the focus: it goes to the same link in the new contents.
  function fill(card, ...contents) {
    const held = card.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const open = card.querySelector("details")?.open;
    card.replaceChildren(...contents.flat().filter(Boolean));
    if (open && card.querySelector("details")) card.querySelector("details").open = true;
    if (held) [...card.querySelectorAll("a")].find((a) => a.getAttribute("href") === held)?.focus({ preventScroll: true });
  }

  const facts = (...pairs) => el("dl", { class: "facts" },
    pairs.filter(Boolean).map(([name, ...value]) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value))));

  // The header and the figures.

  function drawHeader() {
    const state = world.state;
    if (!state) return;
    document.body.classList.toggle("soft", isSoft());
    const parts = [`policy ${state.policy}`, ...(isSoft() ? [] : [`preset ${state.preset}`]), state.dim ? count(state.dim, "feature") : "no features yet"];
    $("about").textContent = parts.join(" · ");
    $("version").textContent = `sclub ${state.version ?? ""} · up ${lasting(state.uptime_seconds ?? 0)} · ${count(state.events ?? 0, "event")} in the log`;
    $("writable").hidden = false;
    $("writable").textContent = state.writable ? "writable" : "read-only";
    $("writable").classList.toggle("warn", !state.writable);
    const reason = state.read_only_reason ?? "the store takes no writes";
    say(state.writable ? null : `Read-only, so nothing is learned. ${reason.charAt(0).toUpperCase()}${reason.slice(1)}.`.replace(/\.\.$/, "."));
  }

  function say(text) {
    if ($("banner").textContent !== (text ?? "")) $("banner").textContent = text ?? "";
    $("banner").hidden = !text;
  }

  function put(id, text, under, unit) {
    $(`figure-${id}`).replaceChildren(text, ...(unit && text !== "–" ? [el("span", { class: "unit" }, `\u202f${unit}`)] : []));
    $(`under-${id}`).textContent = under ?? "";
  }

  // The mean reward of a stretch, each second with the weight of its feedback.
  function rewardOver(ms) {
    let [sum, weight] = [0, 0];
    for (const point of world.seconds) {
      if (point.at < now() - ms || point.reward === null) continue;
      sum += point.reward * point.feedbacks;
      weight += point.feedbacks;
    }
    return weight > 0 ? sum / weight : null;
  }

  function drawFigures() {
    const state = world.state;
    if (!state) return;
    const live = world.latest;
    const figures = { ...state, ...(live ?? {}) };
    const recent = rewardOver(60000);
    const ever = state.rewards > 0 ? state.reward_sum / state.rewards : null;
    const alone = state.clustering ? null : figures.users > 0 ? (100 * figures.singletons) / figures.users : null;
    const share = state.clustering && figures.users > 0 ? 100 * state.clustering.unplaced : alone;
    put("users", whole(figures.users), state.expected_users > 0 ? `${whole(state.expected_users)} expected` : "");
    const each = figures.clusters > 0 && figures.users > 0 ? figures.users / figures.clusters : null;
    put("clusters", whole(figures.clusters), each === null ? "" : `${short(each)} users each`);
    $("name-singletons").textContent = state.clustering ? "Not placed" : "Users alone";
    const whom = state.clustering ? "of the users, at the last fit" : `${whole(figures.singletons)} of ${whole(figures.users)}`;
    put("singletons", share === null ? "–" : decimal(share, share < 10 ? 1 : 0), share === null ? "" : whom, "%");
    put("rounds", whole(figures.rounds), `${whole(figures.events)} events`);
    put("items", whole(figures.items), "in the catalogue");
    put("reward", decimal(recent ?? ever ?? NaN, 3), recent === null ? (ever === null ? "" : "since the beginning") : `1 min; ${decimal(ever ?? NaN, 3)} ever`);
    put("recommends", live ? whole(live.recommends_per_second) : "–", live ? `${whole(live.feedbacks_per_second)} feedbacks` : "");
    put("p99", live?.recommend_p99_ms == null ? "–" : short(live.recommend_p99_ms), live ? "in the last second" : "", "ms");
  }

  // The clusters as a whole: how many there were, and what they are worth.

  const clustering = (() => {
    const [box, read] = [$("chart-clusters"), $("read-clusters")];
    let last = null;

    // As many clusters from one fit to the next: a line in steps.
    function draw() {
      const [width, height] = [box.clientWidth, box.clientHeight];
      const fits = last?.history ?? [];
      if (!width || document.hidden) return;
      if (!fits.length) {
        box.replaceChildren(el("p", { class: "muted" }, "Nothing has been fitted yet: all users are one."));
        return;
      }
      const [left, right, top, bottom] = [52, 14, 28, 26];
      const end = Math.max(world.latest?.rounds ?? 0, world.state.rounds, fits.at(-1).rounds, 1);
      const begin = Math.max(1, fits[0].rounds);
      const kind = end / begin > 30 ? "log" : "linear";
      const most = Math.max(1, ...fits.map((fit) => fit.clusters));
      const rows = linearTicks(0, most, 5).filter(Number.isInteger);
      const columns = kind === "log" ? { ticks: logTicks(begin, end), low: begin, high: end } : { ticks: linearTicks(0, end, 4).filter((tick) => tick <= end), low: 0, high: end };
      const x = (rounds) => left + scales[kind].share(Math.max(rounds, columns.low), columns.low, columns.high) * (width - left - right);
      const y = (clusters) => top + (1 - clusters / rows.at(-1)) * (height - top - bottom);
      // So many labels as there is room for.
      const every = Math.ceil(columns.ticks.length / Math.max(2, Math.floor((width - left - right) / 80)));
      const named = columns.ticks.filter((_, n) => n % every === 0);
      const axis = svg("g", { class: "axis" },
        rows.map((tick) => [
          svg("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
          svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, whole(tick)),
        ]),
        svg("text", { x: 0, y: 11 }, `clusters, by rounds${kind === "log" ? ", logarithmic" : ""}`),
        named.map((tick) => [
          svg("line", { class: "line", x1: x(tick), x2: x(tick), y1: height - bottom, y2: height - bottom + 4 }),
          svg("text", { x: x(tick), y: height - 6, "text-anchor": x(tick) > width - 40 ? "end" : "middle" }, whole(tick)),
        ]),
        svg("line", { class: "line", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
      const steps = fits.map((fit, n) => `${n === 0 ? "M" : "H"}${x(fit.rounds).toFixed(1)}${n === 0 ? " " : "V"}${y(fit.clusters).toFixed(1)}`);
      const points = fits.map((fit) => svg("circle", { class: "fit ink-reward", cx: x(fit.rounds).toFixed(1), cy: y(fit.clusters).toFixed(1), r: 3 },
        svg("title", {}, `round ${whole(fit.rounds)}: ${count(fit.clusters, "cluster")}`)));
      box.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, axis,
        svg("path", { class: "series ink-reward", d: `${steps.join("")}H${x(end).toFixed(1)}` }), points));
    }

    function tell() {
      const found = last;
      const fitted = found.fits === 0 ? "No fit so far" : `${count(found.clusters, "cluster")} at the last of ${count(found.fits, "fit")}, from the first ${count(found.fitted_at, "round")}`;
      const took = found.fit_seconds === null ? "" : `; it took ${short(found.fit_seconds)}\u202fs`;
      read.textContent = `${fitted}${took}.${found.fitting ? " Another one is being computed; recommending goes on." : ""}`;
    }

    function worth() {
      const state = world.state;
      const found = last;
      const numbers = state.users * (state.dim ?? 0);
      const fact = (name, value, under) => el("div", {}, el("dt", {}, name), el("dd", {}, value), el("dd", { class: "under" }, under));
      const better = found.gain >= 0 ? "better" : "worse";
      const contents = [el("dl", { class: "facts worth" },
        fact("Clusters", found.used ? "in use" : "not in use", found.used ? "recommendations use them" : "recommendations come from what all have in common and each user’s own rewards"),
        fact("Gain", `${decimal(found.gain, Math.abs(found.gain) < 10 ? 1 : 0)}\u202fnats`, `recent rewards are predicted ${better} with clusters than without`),
        fact("Not placed", `${decimal(100 * found.unplaced, 1)}\u202f%`, "of the users: no cluster has them with 50\u202f% or more"),
        fact("Effective parameters", short(found.effective_parameters, 4), numbers ? `settled by the rewards, of ${whole(numbers)}` : "settled by the rewards"),
        fact("Noise", short(found.noise), "variance of a reward around its mean"))];
      const text = JSON.stringify([found, numbers]);
      if ($("worth").dataset.text === text) return;
      $("worth").dataset.text = text;
      $("worth").replaceChildren(...contents);
    }

    function take(found) {
      last = found ?? null;
      $("clustering").hidden = !last;
      if (!last) return;
      const warning = last.warning ? `${last.warning.charAt(0).toUpperCase()}${last.warning.slice(1)}` : "";
      if ($("worth-warning").textContent !== warning) $("worth-warning").textContent = warning;
      $("worth-warning").hidden = !warning;
      worth();
      tell();
      draw();
    }

    // Fits begin and end between two looks at the whole state.
    function live(second) {
      $("fitting").hidden = !second.fitting;
      // Before the first item there is no policy, so nothing that fits.
      return second.fits !== (last?.fits ?? 0) || second.fitting !== (last?.fitting ?? false);
    }

    new ResizeObserver(draw).observe(box);
    return { take, live, draw };
  })();

  // The map.

  const map = $("map");
  const drawing = svg("svg", { role: "presentation" });
  const trails = svg("g");
  const layer = svg("g");
  const labels = svg("g", { class: "labels", "aria-hidden": "true" });
  const rings = svg("g");
  const scale = svg("g", { class: "scale" });
  drawing.append(trails, layer, rings, labels, scale);
  map.prepend(drawing);
  const nodes = new Map();
  const view = { basis: null, box: null, points: new Map(), shares: null };
  let [chosen, shown, frame] = [null, null, 0];

  const radiusOf = (users, unitRadius) => Math.max(users > 1 ? 4 : 2.5, unitRadius * Math.sqrt(users));

  // Radii such that the points cover a tenth of the map and none is huge.
  function unitRadius(width, height) {
    const users = world.clusters.reduce((sum, c) => sum + c.users, 0);
    const most = world.clusters.reduce((top, c) => Math.max(top, c.users), 1);
    const covering = Math.sqrt((0.1 * width * height) / (Math.PI * Math.max(users, 1)));
    return Math.min(covering, (0.11 * Math.min(width, height)) / Math.sqrt(most), 12);
  }

  function place() {
    const rows = world.clusters.map((c) => (Array.isArray(c.estimate) ? c.estimate.map((x) => (Number.isFinite(x) ? x : 0)) : []));
    const dim = Math.max(1, ...rows.map((row) => row.length));
    const full = rows.map((row) => Float64Array.from({ length: dim }, (_, i) => row[i] ?? 0));
    if (full.length === 0) {
      view.points = new Map();
      view.shares = null;
      return;
    }
    const { basis, shares, points } = plane.project(full, world.clusters.map((c) => Math.max(1, c.users)), view.basis);
    if (shares) view.basis = basis;
    view.shares = shares;
    view.points = new Map(world.clusters.map((c, n) => [c.cluster, points[n]]));
  }

  // The part of the plane in view. It follows at once when a point would be outside, else only when much is left empty.
  function fit(width, height, pad) {
    const xs = [...view.points.values()].map((p) => p[0]);
    const ys = [...view.points.values()].map((p) => p[1]);
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const room = { width: Math.max(10, width - 2 * pad), height: Math.max(10, height - 2 * pad - 20) };
    const per = Math.max((right - left) / room.width, (high - low) / room.height, 1e-9);
    const box = view.box;
    const inside = box && box.width === width && box.height === height && box.pad >= pad - 8
      && left >= box.x - (room.width / 2) * box.per && right <= box.x + (room.width / 2) * box.per
      && low >= box.y - (room.height / 2) * box.per && high <= box.y + (room.height / 2) * box.per;
    if (inside && per > 0.72 * box.per) return box;
    view.box = { x: (left + right) / 2, y: (low + high) / 2, per: per * 1.06, width, height, pad };
    return view.box;
  }

  // The drawn cluster that one has gone into, if any.
  function heirOf(label) {
    let heir = label;
    for (let step = 0; step < 50 && world.joined.has(heir); step += 1) heir = world.joined.get(heir);
    return heir !== label && nodes.has(heir) ? nodes.get(heir) : null;
  }

  function ring(node, kind) {
    if (still.matches || rings.childElementCount > 60) return;
    const circle = svg("circle", { class: `ring ${kind}` });
    rings.append(circle);
    node.rings.push({ circle, since: performance.now() });
  }

  function trail(node, origin) {
    if (still.matches || trails.childElementCount > 60) return;
    const line = svg("line", { class: "trail" });
    trails.append(line);
    node.trail = { line, from: origin, since: performance.now() };
  }

  function born(cluster, target) {
    const group = svg("g", { id: `point-${cluster.cluster}`, class: "point", role: "option", "aria-selected": "false" }, svg("circle"));
    const text = svg("text");
    layer.append(group);
    labels.append(text);
    const origin = nodes.get(world.bornOf.get(cluster.cluster));
    const node = { group, text, label: cluster.cluster, rings: [], at: null, from: null, to: null, since: 0, gone: false };
    node.at = origin && !still.matches ? { ...origin.at, r: 2, o: 1 } : { ...target, r: still.matches ? target.r : 0, o: 1 };
    if (origin) {
      ring(node, "split");
      trail(node, origin);
    }
    world.bornOf.delete(cluster.cluster);
    nodes.set(cluster.cluster, node);
    return node;
  }

  function leave(node) {
    const heir = heirOf(node.label);
    node.gone = true;
    nodes.delete(node.label);
    node.text.remove();
    if (still.matches) {
      node.group.remove();
      return null;
    }
    if (heir) ring(heir, "merge");
    return { node, heir };
  }

  const going = new Set();

  function drawMap() {
    const [width, height] = [map.clientWidth, map.clientHeight];
    if (!width || document.hidden) return;
    const unitR = unitRadius(width, height);
    const most = world.clusters.reduce((top, c) => Math.max(top, c.users), 1);
    const pad = Math.max(18, radiusOf(most, unitR) + 8);
    const kept = new Set(world.clusters.map((c) => c.cluster));
    const box = view.points.size ? fit(width, height, pad) : null;
    const started = performance.now();
    // A single point leaves room for the words below it.
    const middle = world.clusters.length === 1 ? 0.3 * height : (height - 20) / 2;
    for (const cluster of world.clusters) {
      const point = view.points.get(cluster.cluster);
      const target = {
        x: width / 2 + (point[0] - box.x) / box.per, y: middle - (point[1] - box.y) / box.per,
        r: radiusOf(cluster.users, unitR), o: 1,
      };
      const node = nodes.get(cluster.cluster) ?? born(cluster, target);
      node.from = { ...node.at };
      node.to = target;
      node.settled = false;
      node.since = started;
      node.users = cluster.users;
      node.count = cluster.count;
      node.group.classList.toggle("single", cluster.users === 1);
      node.group.setAttribute("aria-label", `Cluster ${cluster.cluster}, ${count(cluster.users, "user")}`);
    }
    nameLarge();
    for (const node of [...nodes.values()]) {
      if (kept.has(node.label)) continue;
      const leaving = leave(node);
      if (leaving) {
        node.from = { ...node.at };
        node.since = started;
        node.heir = leaving.heir;
        node.settled = false;
        going.add(node);
      }
    }
    stack();
    drawScale(box, height);
    map.dataset.clusters = String(world.clusters.length);
    describe(radiusOf(2, unitR) > unitR * Math.SQRT2 + 0.01);
    animate();
  }

  // Labels on the points that have room for one, the largest first, none over another.
  function nameLarge() {
    const taken = [];
    for (const { cluster } of world.clusters) {
      const { to, text } = nodes.get(cluster);
      const name = String(cluster);
      const half = 4 * name.length + 2;
      const free = to.r >= half + 3 && taken.every((other) => Math.abs(other.x - to.x) > other.half + half || Math.abs(other.y - to.y) > 15);
      if (free) taken.push({ x: to.x, y: to.y, half });
      const wanted = free ? name : "";
      if (text.textContent !== wanted) text.textContent = wanted;
    }
  }

  // Small points lie over large ones.
  function stack() {
    const wanted = [...going].map((n) => n.group).concat(world.clusters.map((c) => nodes.get(c.cluster).group));
    const present = layer.children;
    wanted.forEach((group, n) => { if (present[n] !== group) layer.insertBefore(group, present[n] ?? null); });
  }

  const eased = (t) => (t < 0.5 ? 2 * t * t : 1 - 2 * (1 - t) ** 2);

  function set(node) {
    const { x, y, r, o } = node.at;
    node.group.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    node.group.firstChild.setAttribute("r", Math.max(0, r).toFixed(1));
    node.group.setAttribute("opacity", o.toFixed(2));
    node.text.setAttribute("x", x.toFixed(1));
    node.text.setAttribute("y", y.toFixed(1));
  }

  function moveRings(node, time) {
    node.rings = node.rings.filter(({ circle, since }) => {
      const t = (time - since) / 1800;
      if (t >= 1) {
        circle.remove();
        return false;
      }
      circle.setAttribute("cx", node.at.x);
      circle.setAttribute("cy", node.at.y);
      circle.setAttribute("r", node.at.r + 3 + 14 * t);
      circle.setAttribute("opacity", 1 - t);
      return true;
    });
    if (!node.trail) return;
    const { line, from, since } = node.trail;
    const t = (time - since) / 2600;
    if (t >= 1 || from.gone || node.gone) {
      line.remove();
      node.trail = null;
      return;
    }
    for (const [name, value] of [["x1", from.at.x], ["y1", from.at.y], ["x2", node.at.x], ["y2", node.at.y], ["opacity", 1 - t]]) line.setAttribute(name, value);
  }

  function step(time) {
    frame = 0;
    let busy = false;
    for (const node of [...nodes.values(), ...going]) {
      const t = still.matches ? 1 : Math.min(1, Math.max(0, (time - node.since) / 900));
      const to = node.gone ? { ...(node.heir?.at ?? node.from), r: node.heir ? Math.min(node.from.r, 4) : 0, o: 0 } : node.to;
      if (node.settled && !node.rings.length && !node.trail) continue;
      const k = eased(t);
      for (const part of ["x", "y", "r", "o"]) node.at[part] = node.from[part] + k * (to[part] - node.from[part]);
      if (node.gone && node.heir) node.at.o = 1 - k ** 4;
      set(node);
      node.settled = t >= 1 && !node.gone;
      moveRings(node, time);
      if (t < 1 || node.rings.length || node.trail) busy = true;
      if (node.gone && t >= 1) {
        for (const { circle } of node.rings) circle.remove();
        node.trail?.line.remove();
        node.group.remove();
        going.delete(node);
      }
    }
    placeTip();
    if (busy) animate();
  }

  function animate() {
    if (!frame) frame = requestAnimationFrame(step);
  }

  function drawScale(box, height) {
    scale.replaceChildren();
    if (!box || !view.shares) return;
    const most = 110 * box.per;
    const power = 10 ** Math.floor(Math.log10(most));
    const length = [5, 2, 1].map((n) => n * power).find((n) => n <= most) ?? power;
    const px = length / box.per;
    const y = height - 12;
    scale.append(
      svg("path", { d: `M12 ${y - 4}v4h${px.toFixed(1)}v-4` }),
      svg("text", { x: 12 + px + 8, y: y + 2 }, `${short(length)} apart`));
  }

  function describe(enlarged) {
    const drawn = world.clusters.length;
    $("map-count").textContent = world.total > drawn ? `the ${whole(drawn)} largest of ${whole(world.total)}` : "";
    const note = $("map-note");
    if (drawn < 2) note.textContent = "";
    else if (!view.shares) note.textContent = "All estimates are equal so far, so all points lie on one another.";
    else {
      const [x, y] = view.shares.map((share) => `${whole(100 * share)}\u202f%`);
      note.textContent = `Near means alike. Across and up are the two directions in which the clusters’ estimates differ most, each cluster counted by its users: ${x} and ${y} of the variance. What differs in the other directions is not seen here.${enlarged ? " Points of few users are drawn larger than their share, to be seen." : ""}`;
    }
    drawEmpty(drawn);
  }

  function command(text) {
    return el("div", { class: "command" }, el("code", {}, text), sclub.copyButton(text));
  }

  let emptyKind = null;

  function drawEmpty(drawn) {
    const begun = (world.latest?.rounds ?? world.state?.rounds) > 0;
    const nobody = drawn <= 1 && !begun;
    const kind = nobody ? "nobody" : drawn === 0 ? "none" : drawn === 1 ? `one ${world.clusters[0].users}` : null;
    const empty = $("map-empty");
    empty.hidden = kind === null;
    layer.setAttribute("visibility", nobody ? "hidden" : "visible");
    if (kind === emptyKind) return;
    emptyKind = kind;
    empty.classList.toggle("low", !nobody);
    const commands = [command("sclub serve"), command(`sclub simulate --url ${location.origin}`)];
    if (kind === null) empty.replaceChildren();
    else if (nobody) empty.replaceChildren(el("strong", {}, "Nobody has been served yet"), el("p", {}, "A server and a world to try it on are two commands:"), ...commands);
    else if (drawn === 0) {
      empty.replaceChildren(el("strong", {}, "No clusters yet"),
        el("p", {}, "Nothing tells users apart so far. They are recommended what all have in common and what their own rewards say."));
    } else if (isSoft()) {
      empty.replaceChildren(el("strong", {}, "One cluster so far"), el("p", {}, "Others show when a fit finds users whom they predict better."));
    } else {
      const users = world.clusters[0].users;
      empty.replaceChildren(el("strong", {}, users === 1 ? "One user so far" : `All ${whole(users)} users are in one cluster`),
        el("p", {}, users === 1 ? "Clusters show as more users are served." : "Nothing tells them apart yet. A point leaves when its estimate is too far from the others’."));
    }
  }

  function pointNear(event) {
    const box = drawing.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    for (const node of nodes.values()) {
      const off = Math.hypot(node.at.x - x, node.at.y - y) - node.at.r;
      const reach = event.pointerType === "touch" ? 20 : 6;
      // Inside several, the smallest is meant: it lies on top.
      const rank = off <= 0 ? node.at.r - 1e6 : off;
      if (off <= reach && (!best || rank < best.rank)) best = { node, rank };
    }
    return best?.node ?? null;
  }

  function show(label) {
    if (shown === label) return;
    nodes.get(shown)?.group.classList.remove("shown");
    shown = label;
    nodes.get(shown)?.group.classList.add("shown");
    map.classList.toggle("over", shown !== null);
    if (shown === null) map.removeAttribute("aria-activedescendant");
    else map.setAttribute("aria-activedescendant", `point-${shown}`);
    placeTip();
    if (chosen === null && shown !== null) clusterCard.soon(shown);
  }

  function placeTip() {
    const node = nodes.get(shown);
    const tip = $("map-tip");
    tip.hidden = !node;
    if (!node) return;
    const text = `cluster ${node.label} · ${count(node.users, "user")}`;
    if (tip.textContent !== text) tip.textContent = text;
    const x = Math.max(4, Math.min(node.at.x - tip.offsetWidth / 2, map.clientWidth - tip.offsetWidth - 6));
    const above = node.at.y - node.at.r - tip.offsetHeight - 8;
    tip.style.transform = `translate(${Math.round(x)}px, ${Math.round(above < 4 ? node.at.y + node.at.r + 8 : above)}px)`;
  }

  function choose(label) {
    if (chosen !== null) mark(chosen, false);
    chosen = label;
    if (chosen !== null) mark(chosen, true);
  }

  function mark(label, on) {
    const group = nodes.get(label)?.group;
    group?.classList.toggle("chosen", on);
    group?.setAttribute("aria-selected", String(on));
  }

  // The nearest point in the direction of an arrow key, those straight ahead first.
  function neighbour(dx, dy) {
    const here = nodes.get(shown)?.to;
    if (!here) return world.clusters[0]?.cluster ?? null;
    let best = null;
    for (const node of nodes.values()) {
      const [x, y] = [node.to.x - here.x, node.to.y - here.y];
      const [ahead, aside] = [x * dx + y * dy, Math.abs(x * dy - y * dx)];
      if (node.label === shown || ahead <= 0.5) continue;
      const cost = ahead + 2 * aside;
      if (!best || cost < best.cost) best = { label: node.label, cost };
    }
    return best?.label ?? shown;
  }

  function onMapKey(event) {
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.target !== map || event.ctrlKey || event.metaKey || event.altKey) return;
    if (arrows[event.key]) show(neighbour(...arrows[event.key]));
    else if (event.key === "Home") show(world.clusters[0]?.cluster ?? null);
    else if (event.key === "End") show(world.clusters.at(-1)?.cluster ?? null);
    else if ((event.key === "Enter" || event.key === " ") && shown !== null) go(`#cluster/${shown}`, false);
    else if (event.key === "Escape") go("#", false);
    else return;
    event.preventDefault();
  }

  function wireMap() {
    drawing.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") show(pointNear(event)?.label ?? null); });
    drawing.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") show(null); });
    drawing.addEventListener("click", (event) => {
      const node = pointNear(event);
      show(node?.label ?? null);
      go(node ? `#cluster/${node.label}` : "#", false);
    });
    map.addEventListener("focus", () => { if (map.matches(":focus-visible") && shown === null) show(chosen ?? world.clusters[0]?.cluster ?? null); });
    map.addEventListener("blur", () => show(null));
    map.addEventListener("keydown", onMapKey);
    new ResizeObserver(() => { if (world.state) drawMap(); }).observe(map);
  }

  // The cluster's card: of the one chosen, else of the one last pointed at.

  const clusterCard = (() => {
    const card = $("cluster-card");
    let [label, timer, ticket, text] = [null, 0, 0, ""];

    function none() {
      label = null;
      text = "";
      ticket += 1;
      clearTimeout(timer);
      $("cluster-title").textContent = "Cluster";
      if (world.clusters.length) return load(world.clusters[0].cluster);
      fill(card, el("p", { class: "muted" }, "Who is in a cluster, and what they like, is shown here."));
      return null;
    }

    function gone(cluster) {
      const heir = world.joined.get(cluster);
      $("cluster-title").textContent = `Cluster ${cluster}`;
      fill(card, el("p", {}, "There is no such cluster", heir === undefined ? "." : [": it joined ", clusterLink(heir), "."]));
    }

    function favourites(list) {
      if (!list?.length) return [el("p", { class: "muted" }, "The catalogue is empty.")];
      const top = Math.max(...list.map((f) => Math.abs(f.mean)), 1e-12);
      return [el("ol", { class: "bars" }, list.map((favourite) => {
        const bar = el("i");
        bar.style.left = "0";
        bar.style.width = `${(100 * Math.max(0, favourite.mean)) / top}%`;
        return el("li", {}, el("bdi", { class: "label", title: favourite.id }, favourite.id), el("span", { class: "track" }, bar), el("span", { class: "value" }, decimal(favourite.mean, 3)));
      }))];
    }

    function draw(found) {
      const members = found.members ?? [];
      const rest = found.users - members.length;
      $("cluster-title").textContent = `Cluster ${found.cluster}`;
      fill(card,
        facts(["Users", whole(found.users)], ["Observations", whole(found.count)], ["Frequency", short(found.frequency)]),
        el("h3", {}, "Favourites"), favourites(found.favourites),
        el("h3", {}, rest > 0 && members.length ? `Members, ${whole(members.length)} of ${whole(found.users)}` : "Members"),
        members.length ? el("ul", { class: "chips" }, members.map((id) => el("li", {}, userLink(id)))) : el("p", { class: "muted" }, "Nobody of them has been seen yet."),
        isSoft() ? null : [el("h3", {}, "Last merge"), whyBlock(found.last_change, "It has not taken in another.")],
        el("p", { class: "note" }, chosen === found.cluster ? "" : "Point at another on the map to see it here; a click keeps it."));
    }

    async function load(cluster) {
      label = cluster;
      ticket += 1;
      const mine = ticket;
      try {
        const found = await sclub.get(`/v1/clusters/${cluster}?items=5&members=12`);
        if (mine !== ticket) return;
        const now = JSON.stringify(found);
        if (now !== text) draw(found);
        text = now;
      } catch (error) {
        if (mine !== ticket) return;
        text = "";
        if (error.status === 404) {
          label = null;
          gone(cluster);
        } else refusedOr(error, (message) => fill(card, el("p", { class: "muted" }, message)));
      }
    }

    function soon(cluster) {
      clearTimeout(timer);
      timer = setTimeout(() => { if (chosen === null && cluster !== label) load(cluster); }, 120);
    }

    // A cluster that nobody chose makes room for the largest when it is gone.
    function refresh() {
      if (chosen === null && (label === null || !nodes.has(label))) return none();
      return label === null ? null : load(label);
    }

    return { none, load, soon, refresh };
  })();

  // The user's card.

  const userCard = (() => {
    const card = $("user-card");
    let [user, ticket, text, last, unasked] = [null, 0, "", null, false];

    function none() {
      user = null;
      text = "";
      last = null;
      ticket += 1;
      fill(card, el("p", { class: "muted" }, "Search an id, or choose a user among the members of a cluster."));
    }

    function draw(found) {
      last = found;
      fill(card,
        el("h3", {}, idOf(found.user)),
        unasked ? el("p", { class: "note" }, "The last to move when this page was opened.") : null,
        facts(["Observations", whole(found.count)], ["Frequency", short(found.frequency)],
          isSoft() && found.cluster === 0 ? ["Cluster", "none"]
            : ["Cluster", clusterLink(found.cluster, String(found.cluster)), el("span", { class: "muted" }, ` of ${count(found.cluster_users, "user")}`)],
          ["First seen", since(found.first_seen)], ["Last seen", since(found.last_seen)]),
        found.placement ? placed(found.placement) : isSoft() ? el("p", { class: "muted" }, "Where she belongs is known after the first fit.") : [el("h3", {}, "Why she is there"),
          whyBlock(found.last_change, "She is where she came in: nothing has set her apart, and no cluster was close enough to join.")],
        estimates(found));
    }

    const percent = (share) => {
      const value = 100 * share;
      if (value > 0 && value < 0.1) return "<\u202f0.1\u202f%";
      return `${decimal(value, value < 10 || value > 90 ? 1 : 0)}\u202f%`;
    };

    // What her rewards say about a cluster.
    function says(evidence) {
      const size = Math.abs(evidence);
      if (size < 0.005) return "her rewards say nothing about it";
      const times = size > 10 ? `10^${whole(size / Math.LN10)}` : short(Math.exp(size));
      return `her rewards are ${times} times ${evidence > 0 ? "likelier" : "less likely"} here than in none`;
    }

    // The probability of each cluster, and of none, with what makes it.
    function placed(placement) {
      const likely = placement.clusters.filter((place, n) => n < PLACES && (n === 0 || place.probability >= 0.001));
      const others = placement.clusters.slice(likely.length);
      const row = (name, share, probability, under, kind) => {
        const bar = el("i");
        bar.style.left = "0";
        bar.style.width = `${100 * probability}%`;
        return el("li", { class: kind }, el("span", { class: "label" }, name), el("span", { class: `track ${kind}` }, bar), el("span", { class: "value" }, percent(probability)),
          el("span", { class: "says" }, `${percent(share)} ${under}`));
      };
      const prior = Math.max(0, 1 - placement.clusters.reduce((sum, place) => sum + place.share, 0));
      const rest = others.reduce((sum, place) => sum + place.probability, 0);
      return el("div", { id: "placement" },
        el("h3", {}, "Where she seems to belong"),
        el("ol", { class: "bars placed" },
          likely.map((place) => row(clusterLink(place.cluster), place.share, place.probability, `before any reward; ${says(place.evidence)}`, "some")),
          row("none of them", prior, placement.none, "before any reward; a taste of her own", "nobody")),
        others.length ? el("p", { class: "note" }, `${count(others.length, "other cluster")}: ${percent(rest)} together.`) : null,
        el("p", { class: "note" }, placement.used ? "Recommendations weigh what the clusters like by these probabilities." : "Recommendations do not use the clusters for now: they come from what all users have in common and her own rewards."));
    }

    function estimates(found) {
      const [hers, theirs] = [found.estimate ?? [], found.cluster_estimate ?? []];
      if (!hers.length) return null;
      const [own, other] = isSoft()
        ? ["without clusters", "with them, as it is recommended from"]
        : ["hers", found.cluster_users === 1 ? "her cluster’s: she is alone in it" : "her cluster’s"];
      const title = isSoft() ? "What she likes, without clusters and with them" : "Her estimate and her cluster’s";
      const [first, second] = isSoft() ? ["Without", "With"] : ["Hers", "Cluster’s"];
      const rows = hers.map((x, i) => el("tr", {}, el("th", { scope: "row" }, String(i + 1)),
        el("td", { class: "number" }, decimal(x, 4)), el("td", { class: "number" }, decimal(theirs[i] ?? NaN, 4))));
      return el("div", { class: "estimates" },
        el("h3", {}, title),
        el("ul", { class: "legend" }, el("li", {}, el("span", { class: "sample ink-p50" }), own), el("li", {}, el("span", { class: "sample ink-p99" }), other)),
        pairs(hers, theirs, Math.max(200, card.clientWidth), title, [first, second]),
        el("details", {}, el("summary", {}, "The numbers"),
          el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Feature"), el("th", { class: "number", scope: "col" }, first), el("th", { class: "number", scope: "col" }, second))), el("tbody", {}, rows))));
    }

    // Two bars a feature, from nought up or down.
    function pairs(hers, theirs, width, title, [first, second]) {
      const [height, left, bottom, top] = [150, 44, 20, 8];
      const all = [...hers, ...theirs].filter(Number.isFinite);
      const ticks = linearTicks(Math.min(0, ...all), Math.max(0, ...all, 1e-9), 4);
      const [low, high] = [ticks[0], ticks.at(-1)];
      const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
      const each = (width - left - 4) / hers.length;
      const thick = Math.max(0.5, Math.min(12, each * 0.38));
      const axis = svg("g", { class: "axis" }, ticks.map((tick) => [
        svg("line", { class: tick === 0 ? "line" : "grid", x1: left, x2: width, y1: y(tick), y2: y(tick) }),
        svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, tidy(tick, ticks)),
      ]));
      const every = Math.ceil(26 / each);
      const bars = hers.map((x, i) => {
        const middle = left + each * (i + 0.5);
        const bar = (value, from, name) => svg("rect", { class: name, x: from.toFixed(1), width: thick.toFixed(1), y: Math.min(y(0), y(value)).toFixed(1), height: Math.max(0.5, Math.abs(y(value) - y(0))).toFixed(1) });
        const label = i % every === 0 ? svg("text", { x: middle, y: height - 4, "text-anchor": "middle" }, String(i + 1)) : null;
        return [svg("g", {}, svg("title", {}, `feature ${i + 1}: ${first.toLowerCase()} ${decimal(x, 3)}, ${second.toLowerCase()} ${decimal(theirs[i] ?? NaN, 3)}`),
          bar(x, middle - thick, "hers"), Number.isFinite(theirs[i]) ? bar(theirs[i], middle, "theirs") : null), label && svg("g", { class: "axis" }, label)];
      });
      return svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${title}, feature by feature; the numbers are below` }, axis, bars);
    }

    // For who cannot see the card: once a search, not at every refresh.
    function announce(words) {
      $("user-said").textContent = words;
    }

    async function load(id, byItself = false) {
      const fresh = id !== user;
      if (fresh || (unasked && !byItself)) text = "";
      if (fresh || !byItself) unasked = byItself;
      user = id;
      ticket += 1;
      const mine = ticket;
      try {
        const found = await sclub.get(`/v1/users/${encodeURIComponent(id)}`);
        if (mine !== ticket) return;
        const now = JSON.stringify(found);
        if (now !== text) draw(found);
        text = now;
        if (fresh && !byItself) announce(isSoft() && found.cluster === 0 ? `${id}: in no cluster` : `${id}: in cluster ${found.cluster} of ${count(found.cluster_users, "user")}`);
      } catch (error) {
        if (mine !== ticket) return;
        text = "";
        last = null;
        if (error.status === 404) announce(`There is no user ${id}`);
        if (error.status === 404 || error.status === 410) user = null;
        if (error.status === 404) fill(card, el("p", {}, "There is no user ", idOf(id), ": nobody of that id has been served, or she was forgotten."));
        else if (error.status === 410) fill(card, el("p", {}, idOf(id), " was forgotten."));
        else refusedOr(error, (message) => fill(card, el("p", { class: "muted" }, message)));
      }
    }

    new ResizeObserver(() => { if (last) draw(last); }).observe($("user-form"));
    return { none, load, refresh: () => { if (user !== null) load(user, true); } };
  })();

  // Which cards are open is in the address, so that they can be linked and gone back to.

  function go(hash, scroll = true) {
    if (!scroll) quietly = true;
    if (hash === "#") {
      if (location.hash) history.pushState(null, "", location.pathname + location.search);
      route();
    } else if (location.hash === hash) route();
    else location.hash = hash;
  }

  let quietly = false;

  async function route() {
    const scroll = !quietly;
    quietly = false;
    const [, kind, rest] = /^#(user|cluster)\/(.+)$/.exec(location.hash) ?? [];
    let id = rest ?? "";
    try { id = decodeURIComponent(id); } catch { /* as it stands */ }
    if (kind === "user") {
      if (document.activeElement !== $("user-search")) $("user-search").value = id;
      // Both cards first: their heights move what is to be revealed.
      await Promise.all([userCard.load(id), clusterCard.refresh()]);
      if (scroll) reveal($("user-title"));
    } else if (kind === "cluster" && /^\d+$/.test(id)) {
      choose(Number(id));
      await clusterCard.load(Number(id));
      if (scroll) reveal($("cluster-title"));
    } else {
      choose(null);
      clusterCard.none();
    }
  }

  function reveal(element) {
    const box = element.getBoundingClientRect();
    if (box.top >= 0 && box.top < innerHeight * 0.6) return;
    element.scrollIntoView({ block: "start", behavior: still.matches ? "auto" : "smooth" });
  }

  // Charts over time.

  function linearTicks(least, most, wanted) {
    const flat = most - least <= 1e-3 * Math.max(Math.abs(least), Math.abs(most));
    const room = flat ? 0.02 * Math.abs(most) || 0.5 : 0;
    const [low, high] = [least - room, most + room];
    const span = high - low;
    const power = 10 ** Math.floor(Math.log10(span / wanted));
    const size = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => span / n <= wanted) ?? 10 * power;
    const first = Math.floor(low / size + 1e-9);
    const last = Math.max(first + 1, Math.ceil(high / size - 1e-9));
    return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * size).toPrecision(12)));
  }

  // Ticks of one axis have the same number of places.
  function tidy(tick, ticks) {
    const places = Math.max(...ticks.map((t) => (String(Number(t.toPrecision(6))).split(".")[1] ?? "").length));
    return decimal(tick, Math.min(places, 6));
  }

  // A range a little wider than the values, at least fourfold, so that it holds a tick or two.
  function logRange(least, most) {
    const [low, high] = [least / 1.2, most * 1.2];
    const widen = Math.max(1, Math.sqrt((4 * low) / high));
    return [low / widen, high * widen];
  }

  function logTicks(low, high) {
    const decades = Math.log10(high / low);
    const steps = decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5];
    const all = [];
    for (let power = -7; power <= 8; power += 1) for (const n of steps) all.push(Number((n * 10 ** power).toPrecision(6)));
    return all.filter((tick) => tick >= low && tick <= high);
  }

  const scales = {
    linear: {
      axis(least, most) {
        const ticks = linearTicks(least, most, 5);
        return { ticks, low: ticks[0], high: ticks.at(-1) };
      },
      share: (value, low, high) => (value - low) / (high - low),
      label: tidy,
    },
    log: {
      axis(least, most) {
        const [low, high] = logRange(least, most);
        return { ticks: logTicks(low, high), low, high };
      },
      share: (value, low, high) => Math.log(Math.max(value, low) / low) / Math.log(high / low),
      label: (tick) => short(tick),
    },
  };

  function chart({ box, read, unit, scale: kind, series, sentence: tell }) {
    const axisScale = scales[kind];
    let held = null;
    let plot = null;

    // As long as there is something to see: a minute at first, ten in the end.
    function spanOf(points) {
      const age = points.length ? now() - points[0].at : 0;
      return [1, 2, 5, 10].map((minutes) => minutes * 60000).find((ms) => age <= ms) ?? KEPT_MS;
    }

    function path(points, of, x, y, dotted) {
      let [text, before] = ["", null];
      for (const point of points) {
        const value = of(point);
        if (value === null || value === undefined) { before = null; continue; }
        const joined = before !== null && point.at - before < 3500;
        text += dotted ? `M${x(point.at).toFixed(1)} ${y(value).toFixed(1)}h0` : `${joined ? "L" : "M"}${x(point.at).toFixed(1)} ${y(value).toFixed(1)}${joined ? "" : "h0"}`;
        before = point.at;
      }
      return text;
    }

    function timeTicks(span) {
      const size = { 1: 15, 2: 30, 5: 60, 10: 120 }[span / 60000];
      return Array.from({ length: span / 1000 / size + 1 }, (_, i) => i * size);
    }

    function draw() {
      const [width, height] = [box.clientWidth, box.clientHeight];
      if (!width || document.hidden) return;
      const points = world.seconds;
      const [left, right, top, bottom] = [52, 14, 28, 26];
      const [span, end] = [spanOf(points), now()];
      const values = points.flatMap((p) => series.map((s) => s.of(p))).filter((v) => Number.isFinite(v) && (kind !== "log" || v > 0));
      const { ticks, low, high } = axisScale.axis(...(values.length ? [Math.min(...values), Math.max(...values)] : kind === "log" ? [0.1, 10] : [0, 1]));
      const x = (at) => left + (1 - (end - at) / span) * (width - left - right);
      const y = (value) => top + (1 - axisScale.share(value, low, high)) * (height - top - bottom);
      const axis = svg("g", { class: "axis" },
        ticks.map((tick) => [
          svg("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
          svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, axisScale.label(tick, ticks)),
        ]),
        svg("text", { x: 0, y: 11 }, unit),
        timeTicks(span).map((seconds) => [
          svg("line", { class: "line", x1: x(end - seconds * 1000), x2: x(end - seconds * 1000), y1: height - bottom, y2: height - bottom + 4 }),
          svg("text", { x: x(end - seconds * 1000), y: height - 6, "text-anchor": seconds === 0 ? "end" : "middle" }, seconds === 0 ? "now" : span <= 120000 ? `−${seconds} s` : `−${seconds / 60} min`),
        ]),
        svg("line", { class: "line", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
      plot = { x, y, top, low: height - bottom, left, right: width - right, span, end };
      const lines = series.map((s) => svg("path", { class: `series ${s.style}`, d: path(points, s.of, x, y, s.dotted) }));
      const empty = values.length ? null : svg("g", { class: "axis" }, svg("text", { x: (left + width - right) / 2, y: height / 2, "text-anchor": "middle" }, "nothing in this time"));
      box.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, axis, lines, empty, crosshair(points)));
    }

    function heldPoint(points) {
      if (held === null || !points.length) return null;
      return points.reduce((best, point) => (Math.abs(point.at - held) < Math.abs(best.at - held) ? point : best));
    }

    function crosshair(points) {
      const point = heldPoint(points);
      const latest = point ?? points.at(-1);
      read.textContent = latest ? `${point ? ago(point.at) : "Now"}: ${tell(latest)}` : "The stream has sent nothing yet.";
      if (!point || plot.x(point.at) < plot.left) return null;
      const at = plot.x(point.at);
      return svg("g", {}, svg("line", { class: "cross", x1: at, x2: at, y1: plot.top, y2: plot.low }),
        series.filter((s) => Number.isFinite(s.of(point))).map((s) => svg("circle", { class: `held ${s.style}`, cx: at, cy: plot.y(s.of(point)), r: 4.5 })));
    }

    function hold(event) {
      if (!plot) return;
      const offset = event.clientX - box.getBoundingClientRect().left;
      const share = Math.min(1, Math.max(0, (offset - plot.left) / (plot.right - plot.left)));
      held = plot.end - (1 - share) * plot.span;
      draw();
    }

    function free() {
      held = null;
      draw();
    }

    function onKey(event) {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key];
      const points = world.seconds;
      if (event.key === "Escape") free();
      if (!by || !points.length) return;
      event.preventDefault();
      const point = heldPoint(points) ?? points.at(-1);
      held = points[Math.max(0, Math.min(points.length - 1, points.indexOf(point) + by))].at;
      draw();
    }

    box.addEventListener("pointermove", hold);
    box.addEventListener("pointerdown", hold);
    // A finger that is lifted leaves what it touched to be read; the next tap elsewhere ends it.
    box.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") free(); });
    box.addEventListener("focus", () => read.setAttribute("aria-live", "polite"));
    box.addEventListener("blur", () => { read.removeAttribute("aria-live"); free(); });
    box.addEventListener("keydown", onKey);
    new ResizeObserver(draw).observe(box);
    return { draw };
  }

  const ms = (value) => (value === null || value === undefined ? "–" : `${short(value)}\u202fms`);
  const charts = [
    chart({
      box: $("chart-reward"), read: $("read-reward"), unit: "mean reward", scale: "linear",
      series: [
        { of: (p) => p.reward, style: "faint ink-reward", dotted: true },
        { of: (p) => (p.reward === null ? null : p.smooth), style: "ink-reward" },
      ],
      sentence: (p) => (p.reward === null ? "no feedback in that second" : `${decimal(p.reward, 3)} in that second from ${count(p.feedbacks, "feedback")}, ${decimal(p.smooth, 3)} smoothed`),
    }),
    chart({
      box: $("chart-latency"), read: $("read-latency"), unit: "ms, logarithmic", scale: "log",
      series: [
        { of: (p) => p.p50, style: "ink-p50" },
        { of: (p) => p.p99, style: "ink-p99" },
        { of: (p) => p.feedback, style: "dashed ink-feedback" },
      ],
      sentence: (p) => `recommend p50 ${ms(p.p50)}, p99 ${ms(p.p99)}; feedback p99 ${ms(p.feedback)}`,
    }),
  ];

  function remember(state) {
    const before = world.seconds.at(-1);
    if (before && state.at <= before.at) return;
    const reward = Number.isFinite(state.reward_rate) ? state.reward_rate : null;
    const feedbacks = reward === null ? 0 : Math.max(state.feedbacks_per_second ?? 0, 1e-9);
    // A mean with exponentially fading weights, each second weighing as much as it had feedback.
    const keep = before ? Math.exp(-(state.at - before.at) / 1000 / SMOOTH_S) : 0;
    const weight = keep * (before?.weight ?? 0) + feedbacks;
    const sum = keep * (before?.sum ?? 0) + feedbacks * (reward ?? 0);
    world.seconds.push({
      at: state.at, reward, feedbacks, weight, sum, smooth: weight > 0 ? sum / weight : null,
      p50: state.recommend_p50_ms, p99: state.recommend_p99_ms, feedback: state.feedback_p99_ms,
    });
    while (world.seconds[0].at < state.at - KEPT_MS) world.seconds.shift();
  }

  // Splits and merges.

  const events = (() => {
    const list = $("events");
    const known = new Set();
    let [waiting, listed, total, timer, held] = [[], [], 0, 0, false];
    const icons = { split: "M8 15V9M8 9L3 3M8 9L13 3", merge: "M8 1V7M3 13L8 7L13 13" };

    function row(change) {
      const words = el("span", {}, sentence(change));
      const icon = svg("svg", { viewBox: "0 0 16 16", role: "img", "aria-label": change.kind }, svg("path", { d: icons[change.kind] ?? icons.split }));
      return { change, item: el("li", { class: change.kind === "merge" ? "merge" : "split" }, icon, words, since(change.at)) };
    }

    function flush() {
      timer = 0;
      if (document.hidden) return;
      if (held && listed.length) {
        tally();
        return;
      }
      const fresh = waiting.sort((a, b) => b.change - a.change).slice(0, LISTED).map(row);
      waiting = [];
      if (fresh.length) {
        const newest = listed[0]?.change.change ?? -1;
        const inOrder = fresh.at(-1).change.change > newest;
        listed = [...fresh, ...listed].sort((a, b) => b.change.change - a.change.change);
        for (const old of listed.splice(LISTED)) {
          old.item.remove();
          known.delete(old.change.change);
        }
        list.querySelector(".none")?.remove();
        const above = list.scrollTop;
        const tall = list.scrollHeight;
        if (inOrder) list.prepend(...fresh.filter((f) => listed.includes(f)).map((f) => f.item));
        else list.replaceChildren(...listed.map((l) => l.item));
        // Who reads further down is not pushed along.
        if (above > 4) list.scrollTop = above + Math.max(0, list.scrollHeight - tall);
      }
      if (!listed.length && !list.firstChild) list.append(el("li", { class: "none" }, "No cluster has been split or merged yet."));
      tally();
    }

    function tally() {
      $("events-count").textContent = held && waiting.length ? `${whole(waiting.length)} new, held while you point here`
        : total > listed.length ? `the last ${whole(listed.length)} of ${whole(total)}` : "";
    }

    // Rows do not run away from under the mouse.
    function hold(on) {
      held = on;
      flush();
    }

    list.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") hold(true); });
    list.addEventListener("pointerleave", () => hold(false));

    function add(changes, all) {
      if (all !== undefined) total = all;
      for (const change of changes) {
        if (known.has(change.change) || (listed.length >= LISTED && change.change < listed.at(-1).change.change)) continue;
        known.add(change.change);
        if (all === undefined) total += 1;
        waiting.push(change);
      }
      if (waiting.length > 4 * LISTED) {
        waiting.sort((a, b) => b.change - a.change);
        for (const old of waiting.splice(LISTED)) known.delete(old.change);
      }
      if (!timer) timer = setTimeout(flush, waiting.length > 30 ? 1000 : 300);
    }

    // A server with another history: what was listed is not its own.
    function clear() {
      known.clear();
      [waiting, listed, total] = [[], [], 0];
      list.replaceChildren();
    }

    return { add, flush, clear };
  })();

  function note(change) {
    world.dirty = true;
    if (change.kind === "merge") world.joined.set(change.gone, change.kept);
    else {
      // An old split is no news when its cluster becomes large enough to be drawn.
      if (now() - change.at < FRESH_MS) world.bornOf.set(change.into, change.from);
      world.joined.delete(change.into);
    }
    for (const fading of [world.joined, world.bornOf]) while (fading.size > 5000) fading.delete(fading.keys().next().value);
  }

  // Talking to the server.

  function live(state, text) {
    if ($("live").dataset.state === state && $("live").textContent === text) return;
    $("live").dataset.state = state;
    $("live").textContent = text;
  }

  function refusedOr(error, otherwise) {
    if (error instanceof sclub.ApiError && error.refused) askForKey(error);
    else otherwise(error instanceof sclub.ApiError ? `The server says: ${error.message}.` : "The server does not answer.");
  }

  let keyGiven = null;

  function askForKey(error) {
    live("refused", "a key is needed");
    $("key-why").textContent = error.status === 403 ? "This key may not read here." : sclub.key() ? "The server does not know this key." : "This server asks for a key.";
    if ($("key-form").hidden) {
      $("key-form").hidden = false;
      $("key").focus();
    }
  }

  function wireKey() {
    $("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      sclub.setKey($("key").value.trim());
      $("key").value = "";
      $("key-form").hidden = true;
      showForget();
      if (keyGiven) keyGiven();
      else location.reload();
    });
    $("forget-key").addEventListener("click", () => {
      sclub.setKey(null);
      location.reload();
    });
    showForget();
  }

  function showForget() {
    $("forget-key").hidden = !sclub.key();
  }

  function takeState(state) {
    const restarted = world.state && state.events < world.state.events;
    if (restarted) {
      events.clear();
      world.joined.clear();
      world.bornOf.clear();
      view.basis = null;
    }
    world.state = state;
    if (world.latest && restarted) world.latest = null;
    drawHeader();
    drawFigures();
    clustering.take(state.clustering);
  }

  function takeClusters(answer) {
    world.clusters = (answer.clusters ?? []).slice(0, DRAWN);
    world.total = answer.total ?? world.clusters.length;
    place();
    drawMap();
    if (chosen !== null) mark(chosen, true);
  }

  async function refreshAll() {
    const [state, clusters, past] = await Promise.all([
      sclub.get("/v1/state"), sclub.get(`/v1/clusters?limit=${DRAWN}`), sclub.get("/v1/history?limit=100")]);
    takeState(state);
    for (const change of [...past.changes].reverse()) note(change);
    world.dirty = false;
    takeClusters(clusters);
    events.add(past.changes, past.total);
    events.flush();
    for (const one of charts) one.draw();
    if (!document.documentElement.dataset.ready) {
      document.documentElement.dataset.ready = "1";
      route();
      const mover = past.changes.find((change) => change.user);
      if (mover && !location.hash.startsWith("#user/")) userCard.load(mover.user, true);
    }
  }

  let polling = false;
  let polls = 0;

  async function poll() {
    if (!world.dirty || document.hidden || polling || !world.state || $("live").dataset.state !== "connected") return;
    polling = true;
    world.dirty = false;
    polls += 1;
    try {
      takeClusters(await sclub.get(`/v1/clusters?limit=${DRAWN}`));
      clusterCard.refresh();
      userCard.refresh();
      if (polls % 5 === 0) takeState(await sclub.get("/v1/state"));
    } catch (error) {
      world.dirty = true;
      refusedOr(error, () => {});
    } finally {
      polling = false;
    }
  }

  const takes = {
    state(state) {
      world.clock = state.at - Date.now();
      const seen = `${state.events} ${state.rounds} ${state.users} ${state.clusters}`;
      if (seen !== world.seen) world.dirty = true;
      world.seen = seen;
      world.latest = state;
      remember(state);
      const fits = clustering.live(state);
      if (world.state && (fits || state.writable !== world.state.writable)) sclub.get("/v1/state").then(takeState, () => {});
      if (document.hidden) return;
      drawFigures();
      for (const one of charts) one.draw();
    },
    change(change) {
      note(change);
      events.add([change]);
    },
  };

  function dispatch(block) {
    let [name, data] = ["message", []];
    for (const line of block.split("\n")) {
      const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
      if (field === "event") name = value;
      else if (field === "data") data.push(value);
    }
    if (!data.length || !Object.hasOwn(takes, name)) return;
    let parsed = null;
    try { parsed = JSON.parse(data.join("\n")); } catch { return; }
    takes[name](parsed);
  }

  async function openStream(signal) {
    const response = await fetch("/v1/stream", { headers: sclub.headers({ Accept: "text/event-stream" }), cache: "no-store", signal });
    if (!response.ok) throw await sclub.failure(response);
    return response;
  }

  // Reads until the stream ends. Fetch, not EventSource: that one sends no header with a key.
  async function follow(response, alive) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      rest = (rest + value).replace(/\r\n/g, "\n");
      const blocks = rest.split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) dispatch(block);
    }
  }

  const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

  async function connection(connected) {
    const control = new AbortController();
    let watch = 0;
    const alive = () => {
      clearTimeout(watch);
      watch = setTimeout(() => control.abort(), SILENCE_MS);
    };
    try {
      alive();
      // Opened first, so that no change falls between what is fetched and what is streamed.
      const opening = openStream(control.signal).then((response) => ({ response }), (error) => ({ error }));
      await refreshAll();
      const { response, error } = await opening;
      if (error) throw error;
      alive();
      connected();
      await follow(response, alive);
    } finally {
      clearTimeout(watch);
      control.abort();
    }
  }

  async function run() {
    let wait = 500;
    for (;;) {
      try {
        await connection(() => {
          wait = 500;
          live("connected", "live");
        });
      } catch (error) {
        if (error instanceof sclub.ApiError && error.refused) {
          askForKey(error);
          await new Promise((given) => { keyGiven = given; });
          keyGiven = null;
          live("connecting", "connecting");
          wait = 500;
          continue;
        }
        if (!(error instanceof sclub.ApiError) && !["TypeError", "AbortError", "TimeoutError"].includes(error.name)) console.error(error);
      }
      live("reconnecting", "reconnecting");
      await pause(wait * (0.75 + Math.random() / 2));
      wait = Math.min(wait * 2, 15000);
    }
  }

  function start() {
    sclub.themeSwitch($("theme"));
    wireKey();
    wireMap();
    clusterCard.none();
    userCard.none();
    $("user-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const id = $("user-search").value.trim();
      if (id) go(`#user/${encodeURIComponent(id)}`, false);
    });
    addEventListener("hashchange", route);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return;
      drawFigures();
      events.flush();
      if (world.state) drawMap();
      for (const one of charts) one.draw();
      clustering.draw();
      poll();
    });
    setInterval(poll, POLL_MS);
    setInterval(() => { if (!document.hidden) age(); }, 1000);
    run();
  }

  start();
}

document.addEventListener("DOMContentLoaded", () => {
  if (document.getElementById("map")) dashboard();
});
