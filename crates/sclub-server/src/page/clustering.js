// The clustering as a whole: the number of clusters over time, and their benefit.

import { chart, counting, ink, line, logarithmic, uPlot } from "./charts.js";
import { $, el } from "./dom.js";
import { count, decimal, short, whole } from "./numbers.js";
import { hasClusters, world } from "./world.js";

const [box, read] = [$("chart-clusters"), $("read-clusters")];
let [last, drawn, drawnLog] = [null, null, null];

const labels = (plot, ticks) => ticks.map((tick) => whole(tick));

// The number of clusters is constant from one fit to the next: a step line. The point after the last fit ends the line.
function made(log) {
  return chart(box, {
    unit: `clusters, by rounds${log ? ", logarithmic" : ""}`,
    x: { ...(log ? logarithmic : counting), values: labels },
    y: { values: labels, ...counting },
    // Half of the longest label may stand beyond the last round.
    padding: [24, 40, 0, 0],
    scales: { x: { time: false, distr: log ? 3 : 1, range: (plot, low, high) => [log ? low : 0, high] }, y: { range: (plot, low, high) => [0, 1.05 * Math.max(1, high)] } },
    series: [{}, line({
      ink: "cluster", paths: uPlot.paths.stepped({ align: 1 }),
      points: { show: true, size: 6, width: 0, fill: () => ink("cluster"), filter: (plot) => plot.data[0].slice(0, -1).map((_, n) => n) },
    })],
    cursor: { points: { size: 9 } },
    hooks: { setCursor: [(plot) => {
      const { idx } = plot.cursor;
      const fit = last?.history[idx];
      box.title = fit ? `round ${whole(fit.rounds)}: ${count(fit.clusters, "cluster")}` : "";
    }] },
  });
}

export function draw() {
  const fits = last?.history ?? [];
  if (!box.clientWidth || document.hidden) return;
  if (!fits.length) {
    drawn?.end();
    [drawn, drawnLog] = [null, null];
    box.replaceChildren(el("p", { class: "muted" }, "There has been no fit yet: all users are treated as one."));
    return;
  }
  const end = Math.max(world.latest?.rounds ?? 0, world.state.rounds, fits.at(-1).rounds, 1);
  const begin = Math.max(1, fits[0].rounds);
  const log = end / begin > 30;
  if (drawnLog !== log) {
    drawn?.end();
    [drawn, drawnLog] = [made(log), log];
  }
  drawn.set([[...fits.map((fit) => Math.max(fit.rounds, begin)), end], [...fits.map((fit) => fit.clusters), fits.at(-1).clusters]]);
}

function tell() {
  const found = last;
  const fitted = found.fits === 0 ? "No fit so far" : `${count(found.clusters, "cluster")} at the last of ${count(found.fits, "fit")}, from the first ${count(found.fitted_at, "round")}`;
  const took = found.fit_seconds === null ? "" : `; it took ${found.fit_seconds < 1 ? `${short(1000 * found.fit_seconds, 2)}\u202fms` : `${short(found.fit_seconds)}\u202fs`}`;
  read.textContent = `${fitted}${took}.${found.fitting ? " Another one is being computed in the background." : ""}`;
}

// The weight of the clusters, as exactly as the gain tells it: it is 27 % at a gain of 0, with any caution.
function weight({ clusters, gain, used }) {
  if (clusters === 0) return "none";
  if (used) return "50\u202f% or more";
  return gain < 0 ? "below 27\u202f%" : "27 to 50\u202f%";
}

function worth() {
  const state = world.state;
  $("worth-title").textContent = hasClusters() ? "Benefit of the clusters" : "Learned at the last fit";
  if (state.reward_warning) {
    $("worth").dataset.text = "";
    $("worth").replaceChildren(el("p", { class: "muted" }, hasClusters()
      ? "Not known: all rewards are equal, so all clusters predict them equally well." : "Not known: all rewards are equal."));
    return;
  }
  const found = last;
  const numbers = state.users * (state.dim ?? 0);
  const fact = (name, value, under) => el("div", {}, el("dt", {}, name), el("dd", {}, value), el("dd", { class: "under" }, under));
  const better = found.gain >= 0 ? "better" : "worse";
  const ofClusters = hasClusters() ? [
    fact("Weight of the clusters", weight(found), found.clusters === 0 ? "none were found; all of the weight in recommendations has what all users have in common with each user’s own rewards"
      : "of the weight in recommendations; the rest has what all users have in common with each user’s own rewards"),
    fact("Gain", `${decimal(found.gain, Math.abs(found.gain) < 10 ? 1 : 0)}\u202fnats`, `recent rewards are predicted ${better} with clusters than without`),
    fact("Not placed", `${decimal(100 * found.unplaced, 1)}\u202f%`, "of the users: no cluster has a probability of 50\u202f% or more"),
  ] : [];
  const contents = [el("dl", { class: "facts worth" }, ofClusters,
    fact("Effective parameters", whole(found.effective_parameters), numbers ? `determined by the rewards, of ${whole(numbers)}` : "determined by the rewards"),
    fact("Noise", short(found.noise), "variance of a reward around its mean"))];
  const text = JSON.stringify([found, numbers, hasClusters()]);
  if ($("worth").dataset.text === text) return;
  $("worth").dataset.text = text;
  $("worth").replaceChildren(...contents);
}

export function take(found) {
  last = found ?? null;
  $("clustering").hidden = !last;
  if (!last) return;
  const warning = last.warning && !world.state.reward_warning ? `${last.warning.charAt(0).toUpperCase()}${last.warning.slice(1)}` : "";
  if ($("worth-warning").textContent !== warning) $("worth-warning").textContent = warning;
  $("worth-warning").hidden = !warning;
  worth();
  tell();
  draw();
}

// Fits may begin and end between two reads of the state.
export function live(second) {
  $("fitting").hidden = !second.fitting;
  // Before the first item there is no policy, so there are no fits.
  return second.fits !== (last?.fits ?? 0) || second.fitting !== (last?.fitting ?? false);
}
