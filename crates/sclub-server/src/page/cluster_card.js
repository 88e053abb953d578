// The cluster card: of the chosen cluster, or else of the one last pointed at.

import { get } from "./api.js";
import { $, bar, edges, el, facts, fill } from "./dom.js";
import { refusedOr } from "./key.js";
import { isDrawn, marked } from "./map.js";
import { decimal, whole } from "./numbers.js";
import { beganLater, clusterLink, learned, sinceItBegan, userLink, whyBlock } from "./words.js";
import { isFixed, isSoft, world } from "./world.js";

const card = $("cluster-card");
let [label, timer, ticket, text] = [null, 0, 0, ""];

export function none() {
  label = null;
  text = "";
  ticket += 1;
  clearTimeout(timer);
  $("cluster-title").textContent = "Cluster";
  if (world.clusters.length) return load(world.clusters[0].cluster);
  fill(card, el("p", { class: "muted" }, "Choose a cluster to see its members and their favourite items."));
  return null;
}

function gone(cluster) {
  const heir = world.joined.get(cluster);
  $("cluster-title").textContent = `Cluster ${cluster}`;
  fill(card, el("p", {}, "There is no such cluster", heir === undefined ? "." : [": it joined ", clusterLink(heir), "."]));
}

function favourites({ favourites: list, count }) {
  if (!list?.length) return [el("p", { class: "muted" }, "The catalogue is empty.")];
  if (world.state?.reward_warning) return [el("p", { class: "muted" }, "Not known: all rewards are equal.")];
  if (count === 0) return [el("p", { class: "muted" }, "Not known: no reward has been learned.")];
  const top = Math.max(...list.map((f) => Math.abs(f.mean)), 1e-12);
  return [el("ol", { class: "bars" }, list.map(({ id, title, mean }) => el("li", {}, el("bdi", { class: "label", title: id }, title ?? id),
    el("span", { class: "track" }, bar(Math.max(0, mean) / top)), el("span", { class: "value" }, decimal(mean, 3)))))];
}

// Said if a cluster has no members.
function nobody(found) {
  if (isSoft() || found.users > 0) return "None of its users has given a reward yet.";
  const began = beganLater(found) ? " since it began with an experiment" : " yet";
  return `The policy ${world.state?.policy} has not learned a reward of a user${began}.`;
}

function draw(found) {
  const members = found.members ?? [];
  const rest = found.users - members.length;
  $("cluster-title").textContent = `Cluster ${found.cluster}`;
  fill(card,
    isSoft() ? facts(["Users, at the last fit", whole(found.users)], ["Their rewards, at the last fit", whole(found.count)])
      : facts(["Users", whole(found.users)], ...learned(found)),
    isSoft() || found.count === 0 ? null : sinceItBegan(found, world.state?.policy, "of these users"),
    el("h3", {}, "Favourite items, by expected reward"), favourites(found),
    el("h3", {}, rest > 0 && members.length ? `Members, ${whole(members.length)} of ${whole(found.users)}` : "Members"),
    members.length ? edges(el("ul", { class: "chips" }, members.map((id) => el("li", {}, userLink(id))))) : el("p", { class: "muted" }, nobody(found)),
    isSoft() || isFixed() ? null : [el("h3", {}, "Last merge"), whyBlock(found.last_change, "No cluster has been merged into this one.")],
    el("p", { class: "note" }, marked.chosen === found.cluster ? "" : "Point at a cluster on the map to see it here; click to keep it."));
}

export async function load(cluster) {
  label = cluster;
  ticket += 1;
  const mine = ticket;
  try {
    const found = await get(`/v1/clusters/${cluster}?items=5&members=12`);
    if (mine !== ticket) return;
    // The policy in force is named, and may be another one meanwhile.
    const now = JSON.stringify([found, world.state?.policy, world.hadExperiment]);
    if (now !== text) draw(found);
    text = now;
  } catch (error) {
    if (mine !== ticket) return;
    text = "";
    if (error.status === 404) {
      label = null;
      gone(cluster);
    } else {
      refusedOr(error, (message) => {
        fill(card, el("p", { class: "muted" }, message));
        // Tried again with the next poll.
        world.dirty = true;
      });
    }
  }
}

export function soon(cluster) {
  clearTimeout(timer);
  timer = setTimeout(() => { if (marked.chosen === null && cluster !== label) load(cluster); }, 120);
}

// If a cluster that was not chosen is gone, the largest one is shown instead.
export function refresh() {
  if (marked.chosen === null && (label === null || !isDrawn(label))) return none();
  return label === null ? null : load(label);
}
