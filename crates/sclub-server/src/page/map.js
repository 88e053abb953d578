// The map of the clusters.

import { go } from "./address.js";
import { $, el, svg } from "./dom.js";
import { count, short, whole } from "./numbers.js";
import { project } from "./plane.js";
import { isFixed, isSoft, world } from "./world.js";

// The maximum number of clusters that are drawn.
export const DRAWN = 500;

const still = matchMedia("(prefers-reduced-motion: reduce)");

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
// The chosen cluster, and the one that is pointed at.
export const marked = { chosen: null, shown: null };
let frame = 0;
// Called with each point that is pointed at while none is chosen.
let pointed = () => {};

export const isDrawn = (label) => nodes.has(label);

const radiusOf = (users, unitRadius) => Math.max(users > 1 ? 4 : 2.5, unitRadius * Math.sqrt(users));

// Radii such that the points cover a tenth of the map and none is huge.
function unitRadius(width, height) {
  const users = world.clusters.reduce((sum, c) => sum + c.users, 0);
  const most = world.clusters.reduce((top, c) => Math.max(top, c.users), 1);
  const covering = Math.sqrt((0.1 * width * height) / (Math.PI * Math.max(users, 1)));
  return Math.min(covering, (0.11 * Math.min(width, height)) / Math.sqrt(most), 12);
}

// Computes the axes from scratch, as for another server.
export function forget() {
  view.basis = null;
}

export function place() {
  const rows = world.clusters.map((c) => (Array.isArray(c.estimate) ? c.estimate.map((x) => (Number.isFinite(x) ? x : 0)) : []));
  const dim = Math.max(1, ...rows.map((row) => row.length));
  const full = rows.map((row) => Float64Array.from({ length: dim }, (_, i) => row[i] ?? 0));
  if (full.length === 0) {
    view.points = new Map();
    view.shares = null;
    return;
  }
  const { basis, shares, points } = project(full, world.clusters.map((c) => Math.max(1, c.users)), view.basis);
  if (shares) view.basis = basis;
  view.shares = shares;
  view.points = new Map(world.clusters.map((c, n) => [c.cluster, points[n]]));
}

// The visible part of the plane. It changes at once if a point would be outside, else only if much of it is empty.
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

// The drawn cluster that a cluster was merged into, if any.
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

export function drawMap() {
  const [width, height] = [map.clientWidth, map.clientHeight];
  if (!width || document.hidden) return;
  const unitR = unitRadius(width, height);
  const most = world.clusters.reduce((top, c) => Math.max(top, c.users), 1);
  const pad = Math.max(18, radiusOf(most, unitR) + 8);
  const kept = new Set(world.clusters.map((c) => c.cluster));
  const box = view.points.size ? fit(width, height, pad) : null;
  const started = performance.now();
  // A single point leaves room for the text below it.
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
  else if (!view.shares) note.textContent = "All estimates are equal so far, so all points are at the same place.";
  else {
    const [x, y] = view.shares.map((share) => `${whole(100 * share)}\u202f%`);
    note.textContent = `Near means alike. Across and up are the two directions in which the clusters’ estimates differ most, each cluster counted by its users: ${x} and ${y} of the variance. Differences in other directions are not visible here.${enlarged ? " Points of few users are drawn larger than their share, to be visible." : ""}`;
  }
  drawEmpty(drawn);
}

let emptyKind = null;

function drawEmpty(drawn) {
  const begun = (world.latest?.rounds ?? world.state?.rounds) > 0;
  const unserved = drawn <= 1 && !begun;
  const kind = unserved ? "unserved" : drawn === 0 ? "none" : drawn === 1 ? `one ${world.clusters[0].users} ${world.known} ${world.state.policy}` : null;
  const empty = $("map-empty");
  // A list box must have options.
  map.setAttribute("role", drawn > 0 ? "listbox" : "group");
  empty.hidden = kind === null;
  layer.setAttribute("visibility", unserved ? "hidden" : "visible");
  if (kind === emptyKind) return;
  emptyKind = kind;
  empty.classList.toggle("low", !unserved);
  if (kind === null) empty.replaceChildren();
  else if (unserved) empty.replaceChildren(el("strong", {}, "No user has given a reward yet"), el("p", {}, "Clusters of users appear here once there are rewards."));
  else if (drawn === 0) {
    empty.replaceChildren(el("strong", {}, "No clusters"),
      el("p", {}, "Recommendations use what all users have in common and each user’s own rewards. Clusters appear if the policy looks for groups of users and the rewards show some."));
  } else if (isSoft()) {
    empty.replaceChildren(el("strong", {}, "One cluster so far"), el("p", {}, "More appear when a fit finds clusters that predict the rewards better."));
  } else {
    const { clusters: [{ users }], known, state: { policy } } = world;
    const title = known === null ? users === 1 ? "One user so far" : `All ${whole(users)} users are in one cluster`
      : users === 0 ? "No user is known to this policy yet" : `${count(users, "user")} so far, in one cluster`;
    // Short, because a part of the map has room for it.
    const why = known !== null ? `The policy ${policy} began anew with an experiment, and knows who has given a reward since.`
      : isFixed() ? `The policy ${policy} never splits or merges clusters.`
      : users === 1 ? "Clusters appear as more users are served." : "Their estimates do not differ enough yet. A user leaves the cluster when their estimate is too far from the others’.";
    empty.replaceChildren(el("strong", {}, title), el("p", {}, why));
  }
}

function pointNear(event) {
  const box = drawing.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let best = null;
  for (const node of nodes.values()) {
    const off = Math.hypot(node.at.x - x, node.at.y - y) - node.at.r;
    const reach = event.pointerType === "touch" ? 20 : 6;
    // Inside several points the smallest one is chosen: it is on top.
    const rank = off <= 0 ? node.at.r - 1e6 : off;
    if (off <= reach && (!best || rank < best.rank)) best = { node, rank };
  }
  return best?.node ?? null;
}

function show(label) {
  if (marked.shown === label) return;
  nodes.get(marked.shown)?.group.classList.remove("shown");
  marked.shown = label;
  nodes.get(marked.shown)?.group.classList.add("shown");
  map.classList.toggle("over", marked.shown !== null);
  if (marked.shown === null) map.removeAttribute("aria-activedescendant");
  else map.setAttribute("aria-activedescendant", `point-${marked.shown}`);
  placeTip();
  if (marked.chosen === null && marked.shown !== null) pointed(marked.shown);
}

function placeTip() {
  const node = nodes.get(marked.shown);
  const tip = $("map-tip");
  tip.hidden = !node;
  if (!node) return;
  const text = `cluster ${node.label} · ${count(node.users, "user")}`;
  if (tip.textContent !== text) tip.textContent = text;
  const x = Math.max(4, Math.min(node.at.x - tip.offsetWidth / 2, map.clientWidth - tip.offsetWidth - 6));
  const above = node.at.y - node.at.r - tip.offsetHeight - 8;
  tip.style.transform = `translate(${Math.round(x)}px, ${Math.round(above < 4 ? node.at.y + node.at.r + 8 : above)}px)`;
}

export function choose(label) {
  if (marked.chosen !== null) mark(marked.chosen);
  marked.chosen = label;
  if (marked.chosen !== null) mark(marked.chosen, true);
}

function mark(label, on) {
  const group = nodes.get(label)?.group;
  group?.classList.toggle("chosen", on);
  group?.setAttribute("aria-selected", String(on));
}

// The nearest point in the direction of an arrow key, those straight ahead first.
function neighbour(dx, dy) {
  const here = nodes.get(marked.shown)?.to;
  if (!here) return world.clusters[0]?.cluster ?? null;
  let best = null;
  for (const node of nodes.values()) {
    const [x, y] = [node.to.x - here.x, node.to.y - here.y];
    const [ahead, aside] = [x * dx + y * dy, Math.abs(x * dy - y * dx)];
    if (node.label === marked.shown || ahead <= 0.5) continue;
    const cost = ahead + 2 * aside;
    if (!best || cost < best.cost) best = { label: node.label, cost };
  }
  return best?.label ?? marked.shown;
}

function onMapKey(event) {
  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  if (event.target !== map || event.ctrlKey || event.metaKey || event.altKey) return;
  if (arrows[event.key]) show(neighbour(...arrows[event.key]));
  else if (event.key === "Home") show(world.clusters[0]?.cluster ?? null);
  else if (event.key === "End") show(world.clusters.at(-1)?.cluster ?? null);
  else if ((event.key === "Enter" || event.key === " ") && marked.shown !== null) go(`#cluster/${marked.shown}`);
  else if (event.key === "Escape") go("#");
  else return;
  event.preventDefault();
}

export function wireMap(whenPointed) {
  pointed = whenPointed;
  drawing.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") show(pointNear(event)?.label ?? null); });
  drawing.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") show(null); });
  drawing.addEventListener("click", (event) => {
    const node = pointNear(event);
    show(node?.label ?? null);
    go(node ? `#cluster/${node.label}` : "#");
  });
  map.addEventListener("focus", () => { if (map.matches(":focus-visible") && marked.shown === null) show(marked.chosen ?? world.clusters[0]?.cluster ?? null); });
  map.addEventListener("blur", () => show(null));
  map.addEventListener("keydown", onMapKey);
  new ResizeObserver(() => { if (world.state) drawMap(); }).observe(map);
}
