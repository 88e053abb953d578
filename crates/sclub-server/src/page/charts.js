// Charts by uPlot, in the page's colours and as wide as their boxes.

import { el } from "./dom.js";
import { decimal, short } from "./numbers.js";
import { onTheme } from "./theme.js";

export const { uPlot } = globalThis;

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif';
const probe = el("i", { hidden: true });
const inks = new Map();
document.body.append(probe);
onTheme(() => inks.clear());

// A colour of the style sheet, as it is now.
export function ink(name) {
  if (!inks.has(name)) {
    probe.style.color = `var(--${name})`;
    inks.set(name, getComputedStyle(probe).color);
  }
  return inks.get(name);
}

// Labels of an axis, all with as many places as its step has.
function tidy(plot, ticks, axis, space, step) {
  const places = (String(Number(step.toPrecision(6))).split(".")[1] ?? "").length;
  return ticks.map((tick) => decimal(tick, Math.min(places, 6)));
}

// A logarithmic axis has ticks at 1, 2 and 5 times a power of ten, or fewer where it is long or narrow.
function logTicks(plot, n, low, high) {
  const decades = Math.log10(high / low);
  const steps = decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5];
  const powers = Array.from({ length: Math.ceil(decades) + 2 }, (_, i) => Math.floor(Math.log10(low)) + i);
  const ticks = powers.flatMap((power) => steps.map((step) => Number((step * 10 ** power).toPrecision(6)))).filter((tick) => tick >= low && tick <= high);
  const room = n === 0 ? Math.max(2, Math.floor(plot.width / 70)) : Infinity;
  return ticks.filter((_, i) => i % Math.max(1, Math.ceil(ticks.length / room)) === 0);
}

export const logarithmic = { splits: logTicks, filter: (plot, ticks) => ticks, values: (plot, ticks) => ticks.map((tick) => short(tick)) };

// A range a little wider than the values, at least fourfold, so that it has a tick or two.
export function logRange(plot, least, most) {
  if (least == null) return [0.1, 10];
  const [low, high] = [least / 1.2, most * 1.2];
  const widen = Math.max(1, Math.sqrt((4 * low) / high));
  return [low / widen, high * widen];
}

// A range from zero to a little more than the values. Without values it has some length, so that the axis is drawn.
export function fromZero(plot, least, most) {
  if (least == null || (least === 0 && most === 0)) return [0, 1];
  return [Math.min(0, 1.1 * least), Math.max(0, 1.1 * most)];
}

const whole = [1, 2, 5].flatMap((n) => Array.from({ length: 12 }, (_, power) => n * 10 ** power)).sort((a, b) => a - b);

// An axis that counts: no ticks between whole numbers.
export const counting = { incrs: whole };

const axis = (more) => ({
  font: FONT, stroke: () => ink("muted"), size: 26, gap: 4,
  grid: { stroke: () => ink("grid"), width: 1 }, ticks: { show: false }, ...more,
});

// Points that have no neighbours, so that no line goes through them.
const lonely = (plot, n) => {
  const values = plot.data[n];
  return values.flatMap((value, i) => (value != null && values[i - 1] == null && values[i + 1] == null ? [i] : []));
};

// A line: `ink` names its colour.
export const line = ({ ink: name, ...more }) => ({
  stroke: () => ink(name), width: 2, points: { show: true, size: 4, width: 0, fill: () => ink(name), filter: lonely }, ...more,
});

// A chart that fills a box: `unit` is its heading, `x` and `y` are options of its axes.
export function chart(box, { unit = "", x = {}, y = {}, ...options }) {
  const size = () => ({ width: Math.max(1, box.clientWidth), height: Math.max(1, box.clientHeight) });
  const name = el("span", { class: "unit" }, unit);
  const empty = el("span", { class: "nothing" });
  const off = { mousedown: () => null, mouseup: () => null, click: () => null, dblclick: () => null };
  box.replaceChildren(name, empty);
  const plot = new uPlot({
    ...size(), padding: [unit ? 24 : 8, 14, 0, 0], legend: { show: false },
    axes: [
      axis({ border: { show: true, stroke: () => ink("edge"), width: 1 }, ticks: { show: true, stroke: () => ink("edge"), width: 1, size: 4 }, ...x, grid: { show: false } }),
      axis({ size: 52, gap: 8, values: tidy, ...y }),
    ],
    ...options,
    cursor: { y: false, drag: { x: false, y: false }, ...options.cursor, bind: { ...off, ...options.cursor?.bind } },
  }, null, box);
  const observer = new ResizeObserver(() => { if (box.clientWidth) plot.setSize(size()); });
  observer.observe(box);
  const unfollow = onTheme(() => plot.redraw());
  return {
    plot,
    // `words` are shown if there is no data.
    set(data, words = "") {
      empty.textContent = words;
      box.dataset.points = String(data[0].length);
      plot.setData(data);
    },
    end() {
      observer.disconnect();
      unfollow();
      plot.destroy();
    },
  };
}
