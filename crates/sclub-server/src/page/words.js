// Sentences about splits and merges, with links.

import { bar, el } from "./dom.js";
import { count, decimal, distinct, whole } from "./numbers.js";
import { since, world } from "./world.js";

// A text as a sentence of its own.
export const asSentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`.replace(/\.\.$/, ".");

// Ids that are longer are cut, and have the whole as a tooltip.
export const LONG_ID = 24;

// An id. One with blanks that would not be seen stands in quotation marks.
export function idOf(text) {
  const isLong = text.length > LONG_ID;
  const hasBlanks = /^\s|\s$|\s\s|[^\S ]/.test(text);
  const kinds = [isLong && "id", hasBlanks && "blanks"].filter(Boolean).join(" ");
  return el("bdi", { class: kinds || null, title: isLong ? text : null }, hasBlanks ? `“${text}”` : text);
}

export const percent = (share) => {
  const value = 100 * share;
  if (value > 0 && value < 0.1) return "<\u202f0.1\u202f%";
  return `${decimal(value, value < 10 || value > 90 ? 1 : 0)}\u202f%`;
};

// True if a policy has not learned some of the rewards of the server: it began with an experiment, after them. `frequency` is a number
// of rewards divided by the rounds that the policy has learned; the state may be read a moment later than that.
export function beganLater({ count: rewards, frequency }) {
  const { rounds, rewards: all } = world.state ?? {};
  // Clusters of nodes have no experiments.
  if (!world.hadExperiment || !all) return false;
  return rewards === 0 || rewards / frequency < 0.99 * rounds;
}

// The rewards that a policy has learned of a user or a cluster, for a list of facts. They are a share of all rewards if it has learned all.
export function learned(found) {
  const all = beganLater(found) ? 0 : world.state?.rewards;
  return [["Rewards learned", whole(found.count)], all > 0 ? ["Share of all rewards", percent(Math.min(1, found.count / all))] : null];
}

// Said below these facts, if the policy has not learned all rewards. `whose` names the user or the users.
export function sinceItBegan(found, policy, whose) {
  if (!beganLater(found)) return null;
  return el("p", { class: "note" }, `The policy ${policy} began anew with an experiment, and has learned ${count(found.count, "reward")} ${whose} since then.`);
}

// The names and the values of the context features of a server, which it declares as `hour` and `device=phone|tablet`.
const declared = (context) => (context ?? []).map((text) => text.split("="));
export const contextNames = (context) => declared(context).map(([name]) => name);

// A context that requests may have: the first value of each category, and 1 for numbers.
export function contextExample(context) {
  return Object.fromEntries(declared(context).map(([name, values]) => [name, values?.split("|")[0] ?? 1]));
}

// A text in the direction of its own letters. What is longer than `most` characters is cut, and has the whole as a tooltip.
export function cut(text, most, kind = null) {
  const letters = text.length > most ? [...text] : [];
  return letters.length > most ? el("bdi", { class: kind, title: text }, `${letters.slice(0, most).join("")}…`) : el("bdi", { class: kind }, text);
}

// An item by its title, with its id behind it.
export function itemName({ id, title }) {
  return title ? [cut(title, 100, "title"), " ", el("span", { class: "muted" }, idOf(id))] : idOf(id);
}

export const userLink = (id) => el("a", { href: `#user/${encodeURIComponent(id)}` }, idOf(id));
export const clusterLink = (label, text = `cluster ${label}`) => el("a", { href: `#cluster/${label}` }, text);

function apart(comparison, words) {
  if (!comparison) return [];
  const [distance, threshold] = distinct(comparison.distance, comparison.threshold);
  return words(distance, threshold);
}

function whySplit(change) {
  const alone = change.users === 1 && change.user;
  const what = { estimates: "estimate", frequencies: "frequency" }[change.why?.reason];
  if (!what) return [];
  const many = { estimate: "estimates", frequency: "frequencies" }[what];
  return apart(change.why[change.why.reason], (d, t) => (
    alone ? `: the user’s ${what} is ${d} away, ${t} is allowed` : `: the ${many} are ${d} apart, ${t} is allowed`));
}

function whyMerge(change) {
  const why = change.why ?? {};
  if (why.reason === "connected") return [": ", change.user ? userLink(change.user) : "a newcomer", " is connected to both"];
  const parts = ["estimates", "frequencies"].filter((what) => why[what])
    .map((what) => apart(why[what], (d, t) => `${what} ${d} apart (${t} allowed)`));
  return parts.length ? `: ${parts.join(", ")}` : [];
}

// A split or merge as a sentence, with links.
export function sentence(change) {
  if (change.kind === "merge") {
    return [clusterLink(change.gone), " joined ", clusterLink(change.kept, String(change.kept)), whyMerge(change)];
  }
  const who = change.users === 1
    ? [change.user ? userLink(change.user) : "a forgotten user"]
    : [count(change.users ?? 0, "user")];
  const served = change.users !== 1 && change.user ? [" when ", userLink(change.user), " was served"] : [];
  return [who, " left ", clusterLink(change.from), " for ", clusterLink(change.into, String(change.into)), served, whySplit(change)];
}

function measure(kind, name, comparison) {
  if (!comparison) return null;
  const { distance, threshold } = comparison;
  const top = 1.15 * Math.max(distance, threshold, 1e-300);
  const limit = el("b");
  limit.style.left = `${(100 * threshold) / top}%`;
  const [d, t] = distinct(distance, threshold);
  return el("div", { class: `measure ${kind}` },
    el("div", { class: "track", role: "img", "aria-label": `${name}: distance ${d}, allowed ${t}` }, bar(distance / top), limit),
    el("p", {}, `${name}: ${d} apart, ${t} allowed (the mark)`));
}

export function whyBlock(change, otherwise) {
  if (!change) return el("p", { class: "muted" }, otherwise);
  const why = change.why ?? {};
  return el("div", { class: "why" },
    el("p", {}, sentence(change), el("span", { class: "muted" }, " (", since(change.at), `, round ${whole(change.round)})`)),
    measure(change.kind, "Estimates", why.estimates),
    measure(change.kind, "Frequencies", why.frequencies));
}
