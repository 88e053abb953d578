// The list of splits and merges.

import { $, edges, el, svg } from "./dom.js";
import { whole } from "./numbers.js";
import { sentence } from "./words.js";
import { since } from "./world.js";

const LISTED = 200;
const list = edges($("events"));
const known = new Set();
let [waiting, listed, total, timer, held] = [[], [], 0, 0, false];
const icons = { split: "M8 15V9M8 9L3 3M8 9L13 3", merge: "M8 1V7M3 13L8 7L13 13" };

function row(change) {
  const words = el("span", {}, sentence(change));
  const icon = svg("svg", { viewBox: "0 0 16 16", role: "img", "aria-label": change.kind }, svg("path", { d: icons[change.kind] ?? icons.split }));
  return { change, item: el("li", { class: change.kind === "merge" ? "merge" : "split" }, icon, words, since(change.at)) };
}

export function flush() {
  timer = 0;
  if (document.hidden) return;
  if (held && listed.length) {
    tally();
    return;
  }
  const fresh = waiting.sort((a, b) => b.change - a.change).slice(0, LISTED).map(row);
  waiting = [];
  if (fresh.length) {
    const newest = listed[0]?.change.change ?? -1;
    const inOrder = fresh.at(-1).change.change > newest;
    listed = [...fresh, ...listed].sort((a, b) => b.change.change - a.change.change);
    for (const old of listed.splice(LISTED)) {
      old.item.remove();
      known.delete(old.change.change);
    }
    list.querySelector(".none")?.remove();
    const above = list.scrollTop;
    const tall = list.scrollHeight;
    if (inOrder) list.prepend(...fresh.filter((f) => listed.includes(f)).map((f) => f.item));
    else list.replaceChildren(...listed.map((l) => l.item));
    // Keep the scroll position of a reader further down.
    if (above > 4) list.scrollTop = above + Math.max(0, list.scrollHeight - tall);
  }
  if (!listed.length && !list.firstChild) list.append(el("li", { class: "none" }, "No cluster has been split or merged yet."));
  tally();
}

function tally() {
  $("events-count").textContent = held && waiting.length ? `${whole(waiting.length)} new, held while you point here`
    : total > listed.length ? `the last ${whole(listed.length)} of ${whole(total)}` : "";
}

// New rows wait while the mouse is over the list.
function hold(on) {
  held = on;
  flush();
}

list.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") hold(true); });
list.addEventListener("pointerleave", () => hold(false));

export function add(changes, all) {
  if (all !== undefined) total = all;
  for (const change of changes) {
    if (known.has(change.change) || (listed.length >= LISTED && change.change < listed.at(-1).change.change)) continue;
    known.add(change.change);
    if (all === undefined) total += 1;
    waiting.push(change);
  }
  if (waiting.length > 4 * LISTED) {
    waiting.sort((a, b) => b.change - a.change);
    for (const old of waiting.splice(LISTED)) known.delete(old.change);
  }
  if (!timer) timer = setTimeout(flush, waiting.length > 30 ? 1000 : 300);
}

// The server has another history: clear the list.
export function clear() {
  known.clear();
  [waiting, listed, total] = [[], [], 0];
  list.replaceChildren();
}
