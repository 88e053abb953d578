// Sentences about splits and merges, with links.

import { bar, el } from "./dom.js";
import { count, decimal, distinct, whole } from "./numbers.js";
import { since, world } from "./world.js";

export function idOf(text) {
  return text.length > 24 ? el("bdi", { class: "id", title: text }, text) : el("bdi", {}, text);
}

export const percent = (share) => {
  const value = 100 * share;
  if (value > 0 && value < 0.1) return "<\u202f0.1\u202f%";
  return `${decimal(value, value < 10 || value > 90 ? 1 : 0)}\u202f%`;
};

// A number of rewards as a share of all, for a list of facts.
export function shareOf(rewards) {
  const all = world.state?.rewards ?? 0;
  return all > 0 ? ["Share of all rewards", percent(Math.min(1, rewards / all))] : null;
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
