// The data of the server, and its clock.

import { el } from "./dom.js";
import { lasting } from "./numbers.js";

const FRESH_MS = 10000;

export const world = {
  state: null, clusters: [], total: 0,
  // The number of users that the policy knows, if it began with an experiment and does not know all; else null.
  known: null,
  latest: null, clock: 0, seconds: () => [],
  joined: new Map(), bornOf: new Map(), dirty: true, seen: "",
  // The time since when the server does not answer; null while it does.
  lost: null,
  // True if there is an experiment or was one, after which policies may not know all rewards.
  hadExperiment: false,
  // The time since when the stream says that not all can be written; null while it can.
  unwritable: null,
  // The spaces that there are, if that of the page is none of them.
  others: null,
};
export const now = () => Date.now() + world.clock;
// True if users belong to clusters by probability.
export const isSoft = () => world.state?.fits === true;
// False if the policy never looks for clusters.
export const hasClusters = () => world.state?.has_clusters !== false;
// Said where clusters would be shown.
export const unclustered = (policy) => `The policy ${policy} makes no clusters: recommendations use what all users have in common and each user’s own rewards.`;
// True if clusters stay as they are, as those of policies with one estimate for all users, or with one for each.
export const isFixed = () => !isSoft() && world.state?.regroups === false;

export function ago(ms) {
  const seconds = Math.max(0, (now() - ms) / 1000);
  return seconds < 2 ? "just now" : `${lasting(Math.floor(seconds))} ago`;
}

// The time since an event, kept up to date by `age`.
export function since(ms) {
  const date = new Date(ms);
  return el("time", { "data-at": ms, datetime: date.toISOString(), title: date.toLocaleString() }, ago(ms));
}

export function age() {
  for (const time of document.querySelectorAll("time[data-at]")) {
    const text = ago(Number(time.dataset.at));
    if (time.textContent !== text) time.textContent = text;
  }
}

export function note(change) {
  world.dirty = true;
  if (change.kind === "merge") world.joined.set(change.gone, change.kept);
  else {
    // An old split is not marked when its cluster becomes large enough to be drawn.
    if (now() - change.at < FRESH_MS) world.bornOf.set(change.into, change.from);
    world.joined.delete(change.into);
  }
  for (const fading of [world.joined, world.bornOf]) while (fading.size > 5000) fading.delete(fading.keys().next().value);
}
