// The user card.

import { get } from "./api.js";
import { chart, counting, ink, uPlot } from "./charts.js";
import { $, bar, edges, el, facts, fill } from "./dom.js";
import { refusedOr } from "./key.js";
import { count, decimal, short, whole } from "./numbers.js";
import { clusterLink, contextNames, idOf, itemName, learned, percent, sinceItBegan, whyBlock } from "./words.js";
import { since, unclustered, world } from "./world.js";

const PLACES = 6;

const card = $("user-card");
let [user, ticket, text, unasked] = [null, 0, "", false];

export function none() {
  user = null;
  text = "";
  ticket += 1;
  fill(card, el("p", { class: "muted" }, "Search for an id, or choose a member of a cluster: you see what the user would be recommended now and why, and what the user was shown."));
}

// Clusters of an arm with another policy are not those on the map, which the links lead to.
const clusterOf = (found, label, text) => (found.in_force ? clusterLink(label, text) : text ?? `cluster ${label}`);

// With fits, a user may be in no cluster. A policy without them puts users into one with their first reward.
const isInNone = (found) => (found.fits ? found.cluster === 0 : found.count === 0);

function clusterFact(found) {
  if (!found.has_clusters) return null;
  if (isInNone(found)) return ["Cluster", "none"];
  return ["Cluster", clusterOf(found, found.cluster, String(found.cluster)), el("span", { class: "muted" }, ` of ${count(found.cluster_users, "user")}`)];
}

// The reason for the user's cluster. The policy of an arm has no record of splits and merges.
function reasonOf(found) {
  if (!found.has_clusters) return el("p", { class: "muted" }, unclustered(found.policy));
  if (found.placement) return placed(found);
  if (found.fits) return el("p", { class: "muted" }, "The user’s cluster is known after the first fit.");
  if (found.count === 0) return null;
  if (!found.regroups) return el("p", { class: "muted" }, `The policy ${found.policy} never splits or merges clusters.`);
  if (!found.in_force) return null;
  return [el("h3", {}, "Reason for this cluster"), whyBlock(found.last_change, "The user is still in the first cluster: there was no split and no merge.")];
}

// The parts of the card: statistics, what the user would get now, and what the user was shown. They are of the policy that serves the user:
// in an experiment it may be another one than the server's.
function draw({ id, found, next, recent }) {
  const known = found ? [
    facts(...learned(found), clusterFact(found), ["First reward", since(found.first_seen)], ["Last reward", since(found.last_seen)]),
    sinceItBegan(found, found.policy, "of this user"),
  ] : [el("p", {}, "No reward of this user has been learned, or the user was forgotten. Recommendations are those for a newcomer.")];
  fill(card,
    el("h3", {}, idOf(id)),
    unasked ? el("p", { class: "note" }, "The user who last changed cluster when this page was opened.") : null,
    known,
    el("div", { class: "parts" },
      el("div", {}, nextItems(next, found), shownItems(recent)),
      found ? el("div", {}, reasonOf(found), estimates(found)) : null));
}

// A preview has no context. On a server with context features, no request of an application is like that.
function contextFree() {
  const names = contextNames(world.state.context);
  if (!names.length) return null;
  const listed = names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)} are` : `${names[0]} is`;
  return el("p", { class: "note" }, `Without context: ${listed} 0. A request that gives them may get other items.`);
}

// What the user would be recommended now, and why: expected reward and bonus, and whose rewards it comes from.
function nextItems(next, found) {
  if (!next) return null;
  if (!next.items.length) return [el("h3", {}, "Would get now"), el("p", { class: "muted" }, next.message)];
  const top = Math.max(...next.items.map((item) => Math.abs(item.score)), 1e-12);
  const [own, shared] = found?.fits ? ["without clusters", "with them"]
    : ["by the user’s own rewards", next.cluster_users === world.state.users ? "by those of all users" : "by the cluster’s"];
  const isCompared = found && (found.fits ? found.placement?.clusters.length > 0 : next.cluster_users > 1);
  const why = (item) => {
    const reason = next.random ? "by this draw, for what is not known yet" : "for what is not known yet";
    const bonus = `expected reward ${decimal(item.mean, 3)}, ${item.width < 0 ? "less" : "and"} ${decimal(Math.abs(item.width), 3)} ${reason}`;
    if (!isCompared || item.own_mean === null || item.cluster_mean === null) return bonus;
    return `${bonus}; ${decimal(item.own_mean, 3)} ${own}, ${decimal(item.cluster_mean, 3)} ${shared}`;
  };
  return [
    el("h3", {}, "Would get now, and why"),
    contextFree(),
    next.arm ? el("p", { class: "note" }, `In the experiment ${next.experiment}, this user is in the arm ${next.arm}, served with ${next.policy}.${found && !found.in_force && found.has_clusters ? " Its clusters are not those on the map, which has those of the policy in force." : ""}`) : null,
    el("ol", { class: "bars placed", id: "next-items" }, next.items.map((item) => el("li", {},
      el("span", { class: "label", title: item.title ? `${item.title} (${item.id})` : item.id }, itemName(item)), el("span", { class: "track" }, bar(Math.max(0, item.score) / top)),
      el("span", { class: "value" }, decimal(item.score, 3)), el("span", { class: "says" }, why(item))))),
    el("p", { class: "note" }, `The score is the sum of the expected reward and the bonus.${next.random ? " The policy draws at random, so the next recommendation may differ." : ""}${next.explore_share > 0 ? ` ${percent(next.explore_share)} of the recommendations are drawn uniformly from the catalogue instead.` : ""}`),
  ];
}

// The last decisions: items and rewards.
function shownItems({ decisions: recent, missing_nodes: missing = [] }) {
  const reward = (item) => (item.reward === null ? el("span", { class: "muted" }, "no reward yet") : `reward ${short(item.reward)}`);
  return [
    el("h3", {}, "Was shown, and gave"),
    recent.length ? edges(el("ol", { class: "recent", id: "recent-items", tabindex: "0", "aria-label": "The last decisions, newest first" }, recent.map((decision) => el("li", {}, since(decision.at),
      el("ul", {}, decision.items.map((item) => el("li", { class: item.reward > 0 ? "taken" : null }, el("span", {}, itemName(item)), el("span", {}, reward(item)))))))))
      : el("p", { class: "muted" }, "No recent decision is kept. Earlier ones are in the export."),
    missing.length ? el("p", { class: "note" }, `Decisions of these nodes are missing, because they do not answer: ${missing.join(", ")}.`) : null,
  ];
}

// The evidence of the user's rewards for a cluster.
function describe(evidence) {
  const size = Math.abs(evidence);
  if (size < 0.005) return "the rewards are no evidence for or against it";
  const times = size > 10 ? `10^${whole(size / Math.LN10)}` : short(Math.exp(size));
  return `the rewards are ${times} times ${evidence > 0 ? "likelier" : "less likely"} in it than in none`;
}

// The probability of each cluster, and of none, with the prior and the evidence.
function placed(found) {
  const { placement } = found;
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
      likely.map((place) => row(clusterOf(found, place.cluster), place.share, place.probability, `before any reward; ${describe(place.evidence)}`, "some")),
      row("none of them", prior, placement.none, "before any reward; a taste of their own", "none")),
    others.length ? el("p", { class: "note" }, `${count(others.length, "other cluster")}: ${percent(rest)} together.`) : null,
    el("p", { class: "note" }, placement.used ? "Recommendations weight the clusters’ estimates by these probabilities." : "The clusters have less than half of the weight in recommendations. The rest has what all users have in common with the user’s own rewards."));
}

function estimates(found) {
  const [mine, shared] = [found.estimate ?? [], found.cluster_estimate ?? []];
  if (!mine.length) return null;
  const { title, legend, names } = !found.has_clusters
    ? { title: "The user’s estimate", legend: [], names: ["Estimate"] }
    : found.fits
      ? { title: "Estimate without clusters and with them", legend: ["without clusters", "with clusters, as used for recommendations"], names: ["Without", "With"] }
      : { title: "The user’s estimate and the cluster’s", legend: ["the user’s", found.cluster_users === 1 ? "the cluster’s: it has no other user" : "the cluster’s"], names: ["User’s", "Cluster’s"] };
  // Without clusters both are the same.
  const sides = [mine, shared].slice(0, names.length);
  const head = (name) => el("th", { class: "number", scope: "col" }, name);
  const rows = mine.map((_, i) => el("tr", {}, el("th", { scope: "row" }, String(i + 1)),
    sides.map((side) => el("td", { class: "number" }, decimal(side[i] ?? NaN, 4)))));
  return el("div", { class: "estimates" },
    el("h3", {}, title),
    legend.length ? el("ul", { class: "legend" }, ["p50", "p99"].map((name, n) => el("li", {}, el("span", { class: `sample ink-${name}` }), legend[n]))) : null,
    pairs(mine, sides[1] ?? [], title, names),
    el("details", {}, el("summary", {}, "The numbers"),
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Feature"), names.map(head))), el("tbody", {}, rows))));
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
      pairsBox.title = idx == null ? "" : `feature ${idx + 1}: ${pairsNames.map((_, n) => side(n + 1)).join(", ")}`;
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

async function preview(path) {
  const { items, max_k: most } = world.state ?? {};
  if (items === 0) return { items: [], message: "The catalogue is empty: the candidates come with each request." };
  return get(`${path}/preview?k=${Math.min(5, most ?? 5)}`);
}

export async function load(id, byItself = false) {
  const fresh = id !== user;
  if (fresh || (unasked && !byItself)) text = "";
  if (fresh || !byItself) unasked = byItself;
  user = id;
  ticket += 1;
  const mine = ticket;
  // An address ends at them, also if they are escaped.
  if (id === "." || id === "..") {
    const why = "A browser cannot look up the ids “.” and “..”: it takes them for a part of the address.";
    fill(card, el("h3", {}, idOf(id)), el("p", {}, why, " ", el("code", {}, `sclub explain ${id}`), " can."));
    if (fresh && !byItself) announce(why);
    return;
  }
  try {
    const path = `/v1/users/${encodeURIComponent(id)}`;
    const missing = (status, value) => (error) => { if (error.status === status) return value(error); throw error; };
    const [found, next, recent] = await Promise.all([
      get(path).catch(missing(404, () => null)),
      preview(path).catch(missing(404, (error) => ({ items: [], message: `${error.message}.` }))),
      get(`${path}/recent`)]);
    if (mine !== ticket) return;
    const now = JSON.stringify([found, next, recent, world.hadExperiment]);
    if (now !== text) draw({ id, found, next, recent });
    text = now;
    if (fresh && !byItself) {
      announce(!found ? `No reward of ${id} has been learned` : !found.has_clusters ? `${id}: ${count(found.count, "reward")}`
        : isInNone(found) ? `${id}: in no cluster`
        : `${id}: in cluster ${found.cluster} of ${count(found.cluster_users, "user")}`);
    }
  } catch (error) {
    if (mine !== ticket) return;
    text = "";
    refusedOr(error, (message) => {
      fill(card, el("p", { class: "muted" }, message));
      // Tried again with the next poll.
      world.dirty = true;
    });
  }
}

export function refresh() {
  if (user !== null) load(user, true);
}
