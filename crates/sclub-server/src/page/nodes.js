// The nodes of a cluster, the partitions that each owns, and the partitions that moved.

import { get } from "./api.js";
import { $, edges, el, fill, wide } from "./dom.js";
import { count, whole } from "./numbers.js";
import { since } from "./world.js";

const LISTED = 50;
edges($("moves"));

// The partitions that a node owns or follows, as a short list: "p0, p3, catalogue".
function groups(names) {
  const number = (name) => (name === "catalogue" ? Infinity : Number(name.slice(1)));
  return names.sort((a, b) => number(a) - number(b)).join(", ") || "–";
}

function row(node, answer) {
  const owned = Object.keys(answer.owners).filter((group) => answer.owners[group] === node.name && group !== "fitter");
  const followed = Object.keys(node.groups).filter((group) => !owned.includes(group));
  const users = owned.reduce((sum, group) => sum + (node.groups[group]?.users ?? 0), 0);
  const notes = [node.name === answer.node && "this one", node.is_draining && "shutting down",
    answer.drained.includes(node.name) && "drained", answer.owners.fitter === node.name && "computes fits"].filter(Boolean);
  return el("tr", {},
    el("th", { scope: "row" }, node.name, notes.length ? el("span", { class: "muted" }, ` ${notes.join(", ")}`) : null),
    el("td", {}, groups(owned)), el("td", {}, groups(followed)), el("td", { class: "number" }, whole(users)));
}

function draw(answer) {
  $("nodes").hidden = false;
  const partitions = answer.partitions;
  const without = partitions - Object.keys(answer.owners).filter((group) => /^p\d+$/.test(group)).length;
  $("nodes-note").textContent = `${count(partitions, "partition")}${without > 0 ? `, ${whole(without)} without an owner` : ""}`;
  $("nodes-note").classList.toggle("warn", without > 0);
  const head = el("tr", {}, ["node", "owns", "follows"].map((name) => el("th", { scope: "col" }, name)), el("th", { scope: "col", class: "number" }, "users"));
  fill($("nodes-card"), wide("Nodes",
    el("table", {}, el("thead", {}, head), el("tbody", {}, answer.nodes.map((node) => row(node, answer))))));
  const moves = answer.moves.slice(0, LISTED).map((move) => el("li", {},
    el("span", {}, el("strong", {}, move.group), move.from ? ` from ${move.from}` : "", move.to ? ` to ${move.to}` : " has no owner"), since(move.at)));
  $("moves").replaceChildren(...(moves.length ? moves : [el("li", { class: "none" }, "Nothing has moved since this node started.")]));
}

export async function refresh() {
  try {
    draw(await get("/v1/nodes"));
  } catch {
    // A single server has no nodes.
  }
}
