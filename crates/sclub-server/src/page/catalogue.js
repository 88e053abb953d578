// The catalogue: a page of items with titles, tags, availability and counts, a search, and the other fields of an item.

import { get } from "./api.js";
import { $, el, fill, wide } from "./dom.js";
import { refusedOr } from "./key.js";
import { count, decimal, short, whole } from "./numbers.js";
import { cut, itemName, LONG_ID } from "./words.js";
import { since, world } from "./world.js";

const LEAST = 10;
// The counts by which the server sorts, and their names.
const COUNTS = { shown: "Times shown", rewards: "Rewards", reward_rate: "Mean reward" };
const EVERY_MS = 10000;

// What is asked for: the values of `after` of the pages before this one and of this one, the number of items on a page, the count they are
// sorted by if any, and whether the smallest is first. It is replaced as a whole.
let view = { search: "", pages: [null], length: LEAST, sort: null, isAscending: false };
// What is on the page: the view that was asked for and its answer, which is null if it was an error. While it is another view than `view`,
// that one is being fetched.
let shown = { view, answer: null };
// Requests are numbered. `drawn` is the last one whose answer was taken.
let [ticket, drawn, text, asked, size, later] = [0, 0, "", 0, 0, 0];
// The items of which all fields are shown.
const opened = new Set();

const queryOf = ({ search, pages, length, sort, isAscending }) => {
  const parameters = new URLSearchParams({ limit: String(length), counts: "true" });
  if (search) parameters.set("search", search);
  if (sort) parameters.set("sort", sort);
  if (sort && isAscending) parameters.set("ascending", "true");
  if (pages.at(-1) !== null) parameters.set("after", pages.at(-1));
  return `/v1/items?${parameters}`;
};

// Asks for another view; its first page unless a page is given.
function change(to) {
  view = { ...view, pages: [null], ...to };
  mark();
  fetchPage();
}

// Largest first, then smallest first, then as in the catalogue.
function sortBy(by) {
  const { sort, isAscending } = view;
  change(sort !== by ? { sort: by, isAscending: false } : isAscending ? { sort: null, isAscending: false } : { isAscending: true });
}

function head(by) {
  const { sort, isAscending } = shown.view;
  const order = sort !== by ? "none" : isAscending ? "ascending" : "descending";
  // The nodes of a cluster have parts of the counts.
  const name = world.state?.partitions ? COUNTS[by] : el("button", { type: "button", "data-name": `sort ${by}`, click: () => sortBy(by) }, COUNTS[by]);
  return el("th", { scope: "col", class: "number", "aria-sort": order }, name);
}

function toggle(event, id) {
  // A text in the row was selected.
  if (event.detail > 0 && getSelection().type === "Range") return;
  if (!opened.delete(id)) opened.add(id);
  draw();
}

// The letters of a title and of a tag that a row has at most, and its tags.
const [TITLE, TAG, TAGS] = [100, 30, 5];
const isLong = (text, most) => [...text].length > most;

// What the row of an item leaves out: the rest of its name and its tags, and all fields that have no column.
function detail(item, columns) {
  const value = (of) => (typeof of === "string" ? of : JSON.stringify(of));
  const field = (name, of) => el("div", {}, el("dt", {}, name), el("dd", {}, el("bdi", {}, of)));
  const { id, title, tags = [] } = item;
  const row = (name, ...of) => el("div", { class: "row" }, el("dt", {}, name), el("dd", {}, of));
  return el("tr", { class: "detail" }, el("td", { colspan: columns }, el("dl", {},
    title && isLong(title, TITLE) ? row("Whole title", el("bdi", {}, title)) : null,
    id.length > LONG_ID ? row("Whole id", el("bdi", {}, id)) : null,
    tags.length > TAGS || tags.some((tag) => isLong(tag, TAG)) ? row(count(tags.length, "tag"), tags.map((tag) => [el("bdi", { class: "tag" }, tag), " "])) : null,
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
    el("td", { class: "tags" }, (item.tags ?? []).slice(0, TAGS).map((tag) => [cut(tag, TAG, "tag"), " "]), item.tags?.length > TAGS ? `+${item.tags.length - TAGS}` : null));
  return isOpen ? [shown, detail(item, counts ? 6 : 3)] : shown;
}

// The page before the one shown and the one after it; null if there is none, or while another one is fetched.
function neighbours() {
  const { view: { pages }, answer } = shown;
  if (shown.view !== view) return [null, null];
  return [pages.length > 1 ? pages.slice(0, -1) : null, answer?.next ? [...pages, answer.next] : null];
}

function mark() {
  const [before, next] = neighbours();
  // Not disabled: that would take the focus away.
  $("items-before").setAttribute("aria-disabled", String(!before));
  $("items-next").setAttribute("aria-disabled", String(!next));
}

function draw() {
  const { view: { search, pages, length }, answer } = shown;
  const counted = answer.counts;
  const first = (pages.length - 1) * length + 1;
  $("items-count").textContent = search ? `${count(answer.total, "item")} found` : count(answer.total, "item");
  const plain = (name) => el("th", { scope: "col" }, name);
  const heads = [plain("Item"), counted ? Object.keys(COUNTS).map(head) : null, plain("Available"), plain("Tags")];
  const table = answer.items.length
    ? wide("Items",
      el("table", { class: "items" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, answer.items.map((item, n) => row(item, counted?.[n])))))
    : el("p", { class: "muted" }, search ? "No item has all these words in its id, its title, a tag or another field." : "The catalogue is empty.");
  const from = answer.items.length ? `${whole(first)} to ${whole(first + answer.items.length - 1)} of ${whole(answer.total)}` : "";
  const note = !counted ? "Times shown and rewards are not counted: the server has no journal (--journal-days 0)."
    : answer.counted_since ? ["Times shown and rewards are counted since the first one, ", since(answer.counted_since), "."] : null;
  const missing = answer.missing_nodes?.length ? ` What these nodes counted is missing, because they do not answer: ${answer.missing_nodes.join(", ")}.` : null;
  fill($("items-card"), table, answer.items.length && (note || missing) ? el("p", { class: "note" }, note, missing) : null);
  $("items-page").textContent = from;
  // On a later page it stays, to get back.
  $("items-pages").hidden = answer.total <= LEAST && pages.length === 1;
  mark();
}

async function fetchPage() {
  ticket += 1;
  const [mine, wanted] = [ticket, view];
  asked = Date.now();
  // Another view was asked for meanwhile, or a later answer was faster.
  const isOld = () => wanted !== view || mine < drawn;
  const isFirst = wanted.pages.length === 1;
  try {
    const answer = await get(queryOf(wanted));
    if (isOld()) return;
    // All items of a later page were removed.
    if (!answer.items.length && !isFirst) return void change();
    [shown, drawn] = [{ view, answer }, mine];
    const now = JSON.stringify([answer, view]);
    if (now !== text) draw();
    else mark();
    text = now;
  } catch (error) {
    if (isOld()) return;
    text = "";
    // The item that the page begins after was removed.
    if (error.status === 404 && !isFirst) return void change();
    refusedOr(error, (message) => {
      [shown, drawn] = [{ view, answer: null }, mine];
      fill($("items-card"), el("p", { class: "muted" }, message));
      $("items-page").textContent = "";
      mark();
    });
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
  if (wait <= 0) fetchPage();
  else later = setTimeout(refresh, wait);
}

export function wireCatalogue() {
  let timer = 0;
  const begin = () => {
    clearTimeout(timer);
    const given = $("items-search").value.trim().slice(0, 200);
    if (given !== view.search) change({ search: given });
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
    change({ length: Number($("items-size").value) });
  });
  $("items-before").addEventListener("click", () => {
    const [before] = neighbours();
    if (before) change({ pages: before });
  });
  $("items-next").addEventListener("click", () => {
    const [, next] = neighbours();
    if (next) change({ pages: next });
  });
}
