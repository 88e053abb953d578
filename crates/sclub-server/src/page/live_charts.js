// Rewards, traffic and latencies over time: the last ten minutes by the second, a day by the minute, or 60 days by the hour.

import { get } from "./api.js";
import { chart, fromZero, ink, line, logarithmic, logRange } from "./charts.js";
import { $ } from "./dom.js";
import { refusedOr } from "./key.js";
import { count, date, decimal, short } from "./numbers.js";
import { store, stored } from "./storage.js";
import { asSentence } from "./words.js";
import { ago, now, world } from "./world.js";

const [MINUTE, HOUR, DAY] = [60000, 3600000, 86400000];
// Lines are smoothed over so many steps, and broken by a longer pause than so many.
const SMOOTH_STEPS = 15;
const GAP_STEPS = 3.5;
const CHOICE = "sclub-range";
// A clock that goes back by more than this was set.
const CLOCK_MS = 2000;

const ranges = {
  "10m": { ms: 10 * MINUTE, step: 1000, name: "second", smooth: "15 s" },
  "24h": { ms: DAY, step: MINUTE, name: "minute", smooth: "15 min" },
  "60d": { ms: 60 * DAY, step: HOUR, name: "hour", smooth: "15 h" },
};
let chosen = Object.hasOwn(ranges, stored("localStorage", CHOICE) ?? "") ? stored("localStorage", CHOICE) : "10m";
// The steps of each range. Those of the shortest one go on with the stream.
const kept = { "10m": [], "24h": [], "60d": [] };
// Why a range has no steps yet; null once it was fetched.
const notLoaded = { "10m": "loading", "24h": "loading", "60d": "loading" };
const range = () => ranges[chosen];
world.seconds = () => kept["10m"];

// The charts begin at the first data. They are so long at least: a minute, ten minutes, or six hours.
function spanOf(age) {
  if (chosen === "10m") return [1, 2, 5].map((minutes) => minutes * MINUTE).find((ms) => age <= ms) ?? range().ms;
  return Math.min(range().ms, Math.max(age, chosen === "24h" ? 10 * MINUTE : 6 * HOUR));
}
const SECONDS_APART = { [MINUTE]: 15, [2 * MINUTE]: 30, [5 * MINUTE]: 60, [10 * MINUTE]: 120 };
// Distances of ticks that are times of day, and the longest one between dates.
const APART = [2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, DAY, 2 * DAY, 5 * DAY, 10 * DAY];
const MOST_TICKS = 7;

// Ticks of the time axis: so long ago for minutes, else times of day and dates.
function ticks(span, end) {
  if (chosen === "10m") {
    const apart = 1000 * SECONDS_APART[span];
    return Array.from({ length: span / apart + 1 }, (_, i) => end - apart * i).reverse();
  }
  const apart = APART.find((ms) => span / ms <= MOST_TICKS) ?? APART.at(-1);
  const day = new Date(end);
  day.setHours(0, 0, 0, 0);
  const found = [];
  for (let back = 0; back <= span / DAY + 1; back += Math.max(1, apart / DAY)) {
    const midnight = new Date(day);
    midnight.setDate(day.getDate() - back);
    for (let time = 0; time < DAY; time += apart) found.push(midnight.getTime() + time);
  }
  return found.filter((at) => at >= end - span && at <= end).sort((a, b) => a - b);
}

function tickText(at, span, end) {
  if (chosen !== "10m") {
    const [day, time] = date(at).split(", ");
    return span < 3 * DAY && (chosen === "24h" || time !== "00:00") ? time : day;
  }
  const seconds = Math.round((end - at) / 1000);
  return seconds === 0 ? "now" : span <= 2 * MINUTE ? `−${seconds} s` : `−${seconds / 60} min`;
}

function when(at) {
  return chosen === "10m" ? ago(at) : date(at);
}

function overTime({ box, read, unit, log, series, sentence }) {
  const all = () => kept[chosen];
  let held = null;
  let [span, end] = [MINUTE, now()];
  const nowhere = () => null;
  const drawn = chart(box, {
    unit,
    x: { splits: () => ticks(span, end), values: (plot, at) => at.map((one) => tickText(one, span, end)) },
    y: log ? logarithmic : {},
    scales: { x: { time: false, range: () => [end - span, end] }, y: log ? { distr: 3, range: logRange } : { range: fromZero } },
    series: [{}, ...series.map(({ of, ...style }) => line(style))],
    padding: [24, 24, 0, 0],
    // Moved by `point` below, which also handles touch and keys.
    cursor: { bind: { mousemove: nowhere, mouseleave: nowhere, mouseenter: nowhere }, points: { size: 9, width: 1.5, fill: (plot, n) => plot.series[n].stroke(plot, n), stroke: () => ink("paper") } },
  });

  // One column of times and one of values for each line; a longer pause breaks the lines.
  function columns(points) {
    const rows = [];
    points.forEach((point, n) => {
      if (n && point.at - points[n - 1].at > GAP_STEPS * range().step) rows.push([points[n - 1].at + 1, ...series.map(() => null)]);
      rows.push([point.at, ...series.map((s) => (Number.isFinite(s.of(point)) && (!log || s.of(point) > 0) ? s.of(point) : null))]);
    });
    return [0, ...series].map((_, column) => rows.map((row) => row[column]));
  }

  function draw() {
    if (!box.clientWidth || document.hidden) return;
    const points = all();
    end = now();
    span = spanOf(points.length ? end - points[0].at : 0);
    const data = columns(points);
    const isEmpty = data.slice(1).every((values) => values.every((value) => value === null));
    drawn.set(data, isEmpty ? notLoaded[chosen] ?? "no data in this time" : "");
    box.dataset.range = chosen;
    box.dataset.span = String(span);
    point();
  }

  function heldPoint() {
    if (held === null || !all().length) return null;
    return all().reduce((best, one) => (Math.abs(one.at - held) < Math.abs(best.at - held) ? one : best));
  }

  function point() {
    const found = heldPoint();
    const latest = found ?? all().at(-1);
    const { name } = range();
    const last = () => (world.lost ? `Before the connection was lost, ${ago(latest.at)}` : chosen === "10m" ? "Last second" : `This ${name} so far`);
    read.textContent = latest ? `${found ? `${when(found.at)}, in one ${name}` : last()}: ${sentence(latest)}` : asSentence(notLoaded[chosen] ?? "no data yet");
    const isSeen = found && found.at >= end - span;
    drawn.plot.setCursor(isSeen ? { left: drawn.plot.valToPos(found.at, "x"), top: 0 } : { left: -10, top: -10 });
  }

  function hold(at) {
    held = at;
    point();
  }

  function onPointer(event) {
    const { left, width } = drawn.plot.over.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - left) / width));
    hold(end - (1 - share) * span);
  }

  function onKey(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key];
    const points = all();
    if (event.key === "Escape") hold(null);
    if (!by || !points.length) return;
    event.preventDefault();
    const from = points.indexOf(heldPoint() ?? points.at(-1));
    hold(points[Math.max(0, Math.min(points.length - 1, from + by))].at);
  }

  box.addEventListener("pointermove", onPointer);
  box.addEventListener("pointerdown", onPointer);
  // After a touch the value stays shown until the next tap elsewhere.
  box.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hold(null); });
  box.addEventListener("focus", () => read.setAttribute("aria-live", "polite"));
  box.addEventListener("blur", () => { read.removeAttribute("aria-live"); hold(null); });
  box.addEventListener("keydown", onKey);
  return draw;
}

const ms = (value) => (value === null || value === undefined ? "–" : `${short(value)}\u202fms`);
const charts = [
  overTime({
    box: $("chart-reward"), read: $("read-reward"), unit: "mean reward",
    series: [
      { of: (p) => p.reward, ink: "cluster-faint", paths: () => null, points: { show: true, size: 4, width: 0, fill: () => ink("cluster-faint") } },
      { of: (p) => (p.reward === null ? null : p.smooth), ink: "cluster" },
    ],
    sentence: (p) => (p.reward === null ? "no reward" : `${decimal(p.reward, 3)}, the mean of ${count(p.rewards, "reward")}; ${decimal(p.smooth, 3)} smoothed`),
  }),
  overTime({
    box: $("chart-traffic"), read: $("read-traffic"), unit: "each second",
    series: [
      { of: (p) => p.recommends / p.seconds, ink: "split", width: 1.5 },
      { of: (p) => p.rewards / p.seconds, ink: "merge", width: 1.5, dash: [5, 4] },
    ],
    sentence: (p) => `${count(p.recommends, "recommendation")} and ${count(p.rewards, "reward")}${chosen === "10m" ? "" : `: ${short(p.recommends / p.seconds)} and ${short(p.rewards / p.seconds)} each second`}`,
  }),
  overTime({
    box: $("chart-latency"), read: $("read-latency"), unit: "ms, logarithmic", log: true,
    series: [
      { of: (p) => p.p50, ink: "split", width: 1.5 },
      { of: (p) => p.p99, ink: "cluster", width: 1.5 },
      { of: (p) => p.feedback, ink: "merge", width: 1.5, dash: [5, 4] },
    ],
    sentence: (p) => `recommend p50 ${ms(p.p50)}, p99 ${ms(p.p99)}; feedback p99 ${ms(p.feedback)}`,
  }),
];

export function drawCharts() {
  for (const draw of charts) draw();
}

// Adds a step to a range: its values, and a mean with exponentially fading weights, each step weighing as much as it had rewards.
function add(of, { at, seconds, recommends, rewards, reward, p50, p99, feedback }) {
  const steps = kept[of];
  const before = steps.at(-1);
  if (before && at <= before.at) return;
  const { ms: length, step } = ranges[of];
  const keep = before ? Math.exp(-(at - before.at) / step / SMOOTH_STEPS) : 0;
  const weight = keep * (before?.weight ?? 0) + rewards;
  const sum = keep * (before?.sum ?? 0) + rewards * (reward ?? 0);
  steps.push({ at, recommends, rewards, reward, p50, p99, feedback, weight, sum, smooth: weight > 0 ? sum / weight : null, seconds });
  while (steps[0].at < at - length) steps.shift();
}

const finite = (value) => (Number.isFinite(value) ? value : null);

// A second of the stream. If the clock of the server was set back, what it has kept is fetched again.
export function remember(state) {
  const last = kept["10m"].at(-1)?.at ?? 0;
  if (state.at < last - CLOCK_MS) {
    kept["10m"] = [];
    refresh();
  }
  add("10m", {
    at: state.at, seconds: 1, recommends: state.recommends_per_second, rewards: state.rewards_per_second, reward: finite(state.reward_rate),
    p50: state.recommend_p50_ms, p99: state.recommend_p99_ms, feedback: state.feedback_p99_ms,
  });
}

// Steps that the server has kept, from before this page was opened.
async function fetchRange(of) {
  const answer = await get(`/v1/timeline?range=${of}`);
  const live = kept[of];
  kept[of] = [];
  const steps = of === "10m" ? answer.steps.slice(0, -1) : answer.steps;
  // Those that came by the stream before a crash, which the server has lost.
  const first = steps[0]?.at ?? 0;
  for (const one of live) if (of === "10m" && one.at < first - 500) add(of, one);
  for (const step of steps) {
    add(of, {
      at: step.at, seconds: Math.max(1, step.seconds), recommends: step.recommends, rewards: step.rewards, reward: finite(step.reward_rate),
      p50: step.recommend_p50_ms, p99: step.recommend_p99_ms, feedback: step.feedback_p99_ms,
    });
  }
  // Those of the stream that came meanwhile.
  const last = kept[of].at(-1)?.at ?? 0;
  for (const one of live) if (one.at > last + 500 && one.at <= answer.now + CLOCK_MS) add(of, one);
}

async function load(of) {
  if (notLoaded[of] !== null) notLoaded[of] = "loading";
  try {
    await fetchRange(of);
    notLoaded[of] = null;
  } catch (error) {
    refusedOr(error, (message) => { notLoaded[of] = `not loaded: ${message.charAt(0).toLowerCase()}${message.slice(1, -1)}`; });
  }
}

// Fetches what is shown. Called at first, when another range is chosen, and once a minute. The figures need the last minute at first.
export async function refresh(isFirst = false) {
  await Promise.all([...new Set(isFirst ? ["10m", chosen] : [chosen])].map(load));
  drawCharts();
}

function label() {
  for (const button of document.querySelectorAll("#ranges button")) button.setAttribute("aria-pressed", String(button.value === chosen));
  $("each-step").textContent = `each ${range().name}`;
  $("smooth-step").textContent = `smoothed over ${range().smooth}`;
}

export function wireRanges() {
  label();
  $("ranges").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button || button.value === chosen) return;
    chosen = button.value;
    store("localStorage", CHOICE, chosen === "10m" ? null : chosen);
    label();
    refresh();
  });
  setInterval(() => { if (chosen !== "10m" && !document.hidden && $("live").dataset.state === "connected") refresh(); }, MINUTE);
}
