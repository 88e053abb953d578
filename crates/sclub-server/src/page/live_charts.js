// Rewards and latencies of the last minutes, second by second.

import { chart, ink, line, logarithmic, logRange } from "./charts.js";
import { $ } from "./dom.js";
import { count, decimal, short } from "./numbers.js";
import { ago, now, world } from "./world.js";

const KEPT_MS = 10 * 60 * 1000;
const SMOOTH_S = 15;
const GAP_MS = 3500;

// The time span grows with the data: a minute at first, ten at most.
const spanOf = (age) => [1, 2, 5, 10].map((minutes) => minutes * 60000).find((ms) => age <= ms) ?? KEPT_MS;
const SECONDS_APART = { 60000: 15, 120000: 30, 300000: 60, 600000: 120 };

function overTime({ box, read, unit, log, series, sentence }) {
  const all = () => world.seconds;
  let held = null;
  let [span, end] = [60000, now()];
  const when = (seconds) => (seconds === 0 ? "now" : span <= 120000 ? `−${seconds} s` : `−${seconds / 60} min`);
  const nowhere = () => null;
  const drawn = chart(box, {
    unit,
    x: {
      splits: () => Array.from({ length: span / 1000 / SECONDS_APART[span] + 1 }, (_, i) => end - 1000 * SECONDS_APART[span] * i).reverse(),
      values: (plot, ticks) => ticks.map((tick) => when(Math.round((end - tick) / 1000))),
    },
    y: log ? logarithmic : {},
    scales: { x: { time: false, range: () => [end - span, end] }, y: log ? { distr: 3, range: logRange } : {} },
    series: [{}, ...series.map(({ of, ...style }) => line(style))],
    padding: [24, 24, 0, 0],
    // Moved by `point` below, which also handles touch and keys.
    cursor: { bind: { mousemove: nowhere, mouseleave: nowhere, mouseenter: nowhere }, points: { size: 9, width: 1.5, fill: (plot, n) => plot.series[n].stroke(plot, n), stroke: () => ink("paper") } },
  });

  // One column of times and one of values for each line; a longer pause breaks the lines.
  function columns(points) {
    const rows = [];
    points.forEach((point, n) => {
      if (n && point.at - points[n - 1].at > GAP_MS) rows.push([points[n - 1].at + 1, ...series.map(() => null)]);
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
    drawn.set(data, isEmpty ? "no data in this time" : "");
    point();
  }

  function heldPoint() {
    if (held === null || !all().length) return null;
    return all().reduce((best, one) => (Math.abs(one.at - held) < Math.abs(best.at - held) ? one : best));
  }

  function point() {
    const found = heldPoint();
    const latest = found ?? all().at(-1);
    read.textContent = latest ? `${found ? ago(found.at) : "Now"}: ${sentence(latest)}` : "No data yet.";
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
    sentence: (p) => (p.reward === null ? "no feedback in that second" : `${decimal(p.reward, 3)} in that second from ${count(p.feedbacks, "feedback")}, ${decimal(p.smooth, 3)} smoothed`),
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

export function remember(state) {
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
