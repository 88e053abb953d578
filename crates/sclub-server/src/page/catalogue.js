// The catalogue: a page of items with titles, tags, availability and counts, a search, and the other fields of an item.

import { get } from "./api.js";
import { $, el, fill, wide } from "./dom.js";
import { refusedOr } from "./key.js";
import { count, decimal, short, whole } from "./numbers.js";
import { cut, itemName } from "./words.js";
import { since, world } from "./world.js";

const LEAST = 10;
// The counts by which the server sorts, and their names.
const COUNTS = { shown: "Times shown", rewards: "Rewards", reward_rate: "Mean reward" };
const EVERY_MS = 10000;

// The values of `after` of the pages before this one, and of this one.
let [search, pages, next, ticket, text, asked, size, later] = ["", [null], null, 0, "", 0, 0, 0];
// The number of items on a page, the count they are sorted by if any, and whether the smallest is first.
let [length, sort, isAscending] = [LEAST, null, false];
// The last answer, and the items of which all fields are shown.
let [last, opened] = [null, new Set()];

const query = () => {
  const parameters = new URLSearchParams({ limit: String(length), counts: "true" });
  if (search) parameters.set("search", search);
  if (sort) parameters.set("sort", sort);
  if (sort && isAscending) parameters.set("ascending", "true");
  if (pages.at(-1) !== null) parameters.set("after", pages.at(-1));
  return `/v1/items?${parameters}`;
};

function load(first) {
  if (first) pages = [null];
  return fetchPage();
}

// Largest first, then smallest first, then as in the catalogue.
function sortBy(by) {
  [sort, isAscending] = sort !== by ? [by, false] : isAscending ? [null, false] : [by, true];
  load(true);
}

function head(by) {
  const order = sort !== by ? "none" : isAscending ? "ascending" : "descending";
  // The nodes of a cluster have parts of the counts.
  const name = world.state?.partitions ? COUNTS[by] : el("button", { type: "button", "data-name": `sort ${by}`, click: () => sortBy(by) }, COUNTS[by]);
  return el("th", { scope: "col", class: "number", "aria-sort": order }, name);
}

function toggle(event, id) {
  // A text in the row was selected.
  if (event.detail > 0 && getSelection().type === "Range") return;
  if (!opened.delete(id)) opened.add(id);
  draw(last);
}

// All fields of an item that have no column.
function detail(item, columns) {
  const value = (of) => (typeof of === "string" ? of : JSON.stringify(of));
  const field = (name, of) => el("div", {}, el("dt", {}, name), el("dd", {}, el("bdi", {}, of)));
  return el("tr", { class: "detail" }, el("td", { colspan: columns }, el("dl", {},
    Object.entries(item.data ?? {}).map(([name, of]) => field(name, value(of))),
    field(count(item.features.length, "feature"), item.features.map((x) => short(x)).join(", ")))));
}

function row(item, counts) {
  const cell = (value) => el("td", { class: "number" }, value);
  const isAvailable = item.available !== false;
  const isOpen = opened.has(item.id);
  const shown = el("tr", { class: isAvailable ? null : "away", click: (event) => toggle(event, item.id) },
    el("th", { scope: "row" }, el("button", { type: "button", "aria-expanded": String(isOpen), "data-name": `item ${item.id}` }, el("span", {}, itemName(item)))),
    counts ? [cell(whole(counts.shown)), cell(whole(counts.rewards)), cell(counts.reward_rate === null ? "–" : decimal(counts.reward_rate, 3))] : null,
    el("td", {}, isAvailable ? "yes" : "no"),
    el("td", { class: "tags" }, (item.tags ?? []).slice(0, 5).map((tag) => [cut(tag, 30, "tag"), " "]), item.tags?.length > 5 ? `+${item.tags.length - 5}` : null));
  return isOpen ? [shown, detail(item, counts ? 6 : 3)] : shown;
}

function draw(answer) {
  const counted = answer.counts;
  const first = (pages.length - 1) * length + 1;
  [last, next] = [answer, answer.next];
  $("items-count").textContent = search ? `${count(answer.total, "item")} found` : count(answer.total, "item");
  const plain = (name) => el("th", { scope: "col" }, name);
  const heads = [plain("Item"), counted ? Object.keys(COUNTS).map(head) : null, plain("Available"), plain("Tags")];
  const table = answer.items.length
    ? wide("Items",
      el("table", { class: "items" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, answer.items.map((item, n) => row(item, counted?.[n])))))
    : el("p", { class: "muted" }, search ? "No item has this text in its id, its title, a tag or another field." : "The catalogue is empty.");
  const from = answer.items.length ? `${whole(first)} to ${whole(first + answer.items.length - 1)} of ${whole(answer.total)}` : "";
  const note = !counted ? "Times shown and rewards are not counted: the server has no journal (--journal-days 0)."
    : answer.counted_since ? ["Times shown and rewards are counted since the first one, ", since(answer.counted_since), "."] : null;
  const missing = answer.missing_nodes?.length ? ` What these nodes counted is missing, because they do not answer: ${answer.missing_nodes.join(", ")}.` : null;
  fill($("items-card"), table, answer.items.length && (note || missing) ? el("p", { class: "note" }, note, missing) : null);
  $("items-page").textContent = from;
  $("items-pages").hidden = answer.total <= LEAST;
  // Not disabled: that would take the focus away.
  $("items-before").setAttribute("aria-disabled", String(pages.length === 1));
  $("items-next").setAttribute("aria-disabled", String(!next));
}

async function fetchPage() {
  ticket += 1;
  const mine = ticket;
  asked = Date.now();
  try {
    const answer = await get(query());
    if (mine !== ticket) return;
    const now = JSON.stringify([answer, pages, search, sort, isAscending]);
    if (now !== text) draw(answer);
    text = now;
  } catch (error) {
    if (mine !== ticket) return;
    text = "";
    // The item that the page begins after was removed.
    if (error.status === 404 && pages.length > 1) {
      load(true);
    } else refusedOr(error, (message) => fill($("items-card"), el("p", { class: "muted" }, message)));
  }
}

// Shows what has changed: at once if the number of items has, else some seconds after the last time.
export function refresh() {
  clearTimeout(later);
  const items = world.state?.items ?? 0;
  $("catalogue").hidden = items === 0;
  if (items === 0) return;
  const wait = items === size ? asked + EVERY_MS - Date.now() : 0;
  size = items;
  if (wait <= 0) load();
  else later = setTimeout(refresh, wait);
}

export function wireCatalogue() {
  let timer = 0;
  const begin = () => {
    clearTimeout(timer);
    const given = $("items-search").value.trim().slice(0, 200);
    if (given === search) return;
    search = given;
    load(true);
  };
  $("items-form").addEventListener("submit", (event) => {
    event.preventDefault();
    begin();
  });
  $("items-search").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(begin, 250);
  });
  $("items-size").addEventListener("change", () => {
    length = Number($("items-size").value);
    load(true);
  });
  $("items-before").addEventListener("click", () => {
    if (pages.length === 1) return;
    pages.pop();
    load();
  });
  $("items-next").addEventListener("click", () => {
    if (next === null || pages.at(-1) === next) return;
    pages.push(next);
    load();
  });
}
