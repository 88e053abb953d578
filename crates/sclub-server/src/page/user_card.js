// The user card.

import { get } from "./api.js";
import { chart, counting, ink, uPlot } from "./charts.js";
import { $, bar, el, facts, fill } from "./dom.js";
import { refusedOr } from "./key.js";
import { count, decimal, short, whole } from "./numbers.js";
import { clusterLink, idOf, whyBlock } from "./words.js";
import { isSoft, since } from "./world.js";

const PLACES = 6;

const card = $("user-card");
let [user, ticket, text, unasked] = [null, 0, "", false];

export function none() {
  user = null;
  text = "";
  ticket += 1;
  fill(card, el("p", { class: "muted" }, "Search for an id, or choose a member of a cluster."));
}

function draw(found) {
  fill(card,
    el("h3", {}, idOf(found.user)),
    unasked ? el("p", { class: "note" }, "The user who last changed cluster when this page was opened.") : null,
    facts(["Observations", whole(found.count)], ["Frequency", short(found.frequency)],
      isSoft() && found.cluster === 0 ? ["Cluster", "none"]
        : ["Cluster", clusterLink(found.cluster, String(found.cluster)), el("span", { class: "muted" }, ` of ${count(found.cluster_users, "user")}`)],
      ["First seen", since(found.first_seen)], ["Last seen", since(found.last_seen)]),
    found.placement ? placed(found.placement) : isSoft() ? el("p", { class: "muted" }, "The user’s cluster is known after the first fit.") : [el("h3", {}, "Reason for this cluster"),
      whyBlock(found.last_change, "The user is still in the first cluster: there was no split and no merge.")],
    estimates(found));
}

const percent = (share) => {
  const value = 100 * share;
  if (value > 0 && value < 0.1) return "<\u202f0.1\u202f%";
  return `${decimal(value, value < 10 || value > 90 ? 1 : 0)}\u202f%`;
};

// The evidence of the user's rewards for a cluster.
function describe(evidence) {
  const size = Math.abs(evidence);
  if (size < 0.005) return "the rewards are no evidence for or against it";
  const times = size > 10 ? `10^${whole(size / Math.LN10)}` : short(Math.exp(size));
  return `the rewards are ${times} times ${evidence > 0 ? "likelier" : "less likely"} in it than in none`;
}

// The probability of each cluster, and of none, with the prior and the evidence.
function placed(placement) {
  const likely = placement.clusters.filter((place, n) => n < PLACES && (n === 0 || place.probability >= 0.001));
  const others = placement.clusters.slice(likely.length);
  const row = (name, share, probability, under, kind) => el("li", { class: kind }, el("span", { class: "label" }, name),
    el("span", { class: `track ${kind}` }, bar(probability)), el("span", { class: "value" }, percent(probability)),
    el("span", { class: "says" }, `${percent(share)} ${under}`));
  const prior = Math.max(0, 1 - placement.clusters.reduce((sum, place) => sum + place.share, 0));
  const rest = others.reduce((sum, place) => sum + place.probability, 0);
  return el("div", { id: "placement" },
    el("h3", {}, "Probability of each cluster"),
    el("ol", { class: "bars placed" },
      likely.map((place) => row(clusterLink(place.cluster), place.share, place.probability, `before any reward; ${describe(place.evidence)}`, "some")),
      row("none of them", prior, placement.none, "before any reward; a taste of their own", "none")),
    others.length ? el("p", { class: "note" }, `${count(others.length, "other cluster")}: ${percent(rest)} together.`) : null,
    el("p", { class: "note" }, placement.used ? "Recommendations weight the clusters’ estimates by these probabilities." : "The clusters have less than half of the weight in recommendations. The rest has what all users have in common with the user’s own rewards."));
}

function estimates(found) {
  const [mine, shared] = [found.estimate ?? [], found.cluster_estimate ?? []];
  if (!mine.length) return null;
  const [own, other] = isSoft()
    ? ["without clusters", "with clusters, as used for recommendations"]
    : ["the user’s", found.cluster_users === 1 ? "the cluster’s: it has no other user" : "the cluster’s"];
  const title = isSoft() ? "Estimate without clusters and with them" : "The user’s estimate and the cluster’s";
  const [first, second] = isSoft() ? ["Without", "With"] : ["User’s", "Cluster’s"];
  const rows = mine.map((x, i) => el("tr", {}, el("th", { scope: "row" }, String(i + 1)),
    el("td", { class: "number" }, decimal(x, 4)), el("td", { class: "number" }, decimal(shared[i] ?? NaN, 4))));
  return el("div", { class: "estimates" },
    el("h3", {}, title),
    el("ul", { class: "legend" }, el("li", {}, el("span", { class: "sample ink-p50" }), own), el("li", {}, el("span", { class: "sample ink-p99" }), other)),
    pairs(mine, shared, title, [first, second]),
    el("details", {}, el("summary", {}, "The numbers"),
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Feature"), el("th", { class: "number", scope: "col" }, first), el("th", { class: "number", scope: "col" }, second))), el("tbody", {}, rows))));
}

// Two bars for each feature, from zero up or down. The chart stays while the card around it is rebuilt.
const pairsBox = el("div", { class: "chart low", role: "img" });
let [pairsChart, pairsNames] = [null, []];

function pairs(mine, shared, title, names) {
  const side = (name, align) => ({ fill: () => ink(name), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.38, 12], align }) });
  pairsChart ??= chart(pairsBox, {
    x: counting,
    scales: { x: { time: false, range: (plot, low, high) => [low - 0.5, high + 0.5] }, y: { range: { min: { soft: 0, mode: 1, pad: 0.1 }, max: { soft: 0, mode: 1, pad: 0.1 } } } },
    series: [{}, side("split", -1), side("cluster", 1)],
    padding: [8, 4, 0, 0],
    cursor: { x: false, points: { show: false } },
    hooks: { setCursor: [(plot) => {
      const { idx } = plot.cursor;
      const side = (n) => `${pairsNames[n - 1].toLowerCase()} ${decimal(plot.data[n][idx] ?? NaN, 3)}`;
      pairsBox.title = idx == null ? "" : `feature ${idx + 1}: ${side(1)}, ${side(2)}`;
    }] },
  });
  pairsNames = names;
  pairsBox.setAttribute("aria-label", `${title}, feature by feature; the numbers are below`);
  pairsChart.set([mine.map((_, i) => i + 1), mine, mine.map((_, i) => shared[i] ?? null)]);
  return pairsBox;
}

// For screen readers: once for each search, not at every refresh.
function announce(words) {
  $("user-status").textContent = words;
}

export async function load(id, byItself = false) {
  const fresh = id !== user;
  if (fresh || (unasked && !byItself)) text = "";
  if (fresh || !byItself) unasked = byItself;
  user = id;
  ticket += 1;
  const mine = ticket;
  try {
    const found = await get(`/v1/users/${encodeURIComponent(id)}`);
    if (mine !== ticket) return;
    const now = JSON.stringify(found);
    if (now !== text) draw(found);
    text = now;
    if (fresh && !byItself) announce(isSoft() && found.cluster === 0 ? `${id}: in no cluster` : `${id}: in cluster ${found.cluster} of ${count(found.cluster_users, "user")}`);
  } catch (error) {
    if (mine !== ticket) return;
    text = "";
      if (error.status === 404) announce(`There is no user ${id}`);
    if (error.status === 404 || error.status === 410) user = null;
    if (error.status === 404) fill(card, el("p", {}, "There is no user ", idOf(id), ": no reward of this user has been learned, or the user was forgotten."));
    else if (error.status === 410) fill(card, el("p", {}, idOf(id), " was forgotten."));
    else refusedOr(error, (message) => fill(card, el("p", { class: "muted" }, message)));
  }
}

export function refresh() {
  if (user !== null) load(user, true);
}
