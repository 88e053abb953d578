// The catalogue: a page of items with titles, tags, availability and counts, and a search.

import { get } from "./api.js";
import { $, el, fill } from "./dom.js";
import { refusedOr } from "./key.js";
import { count, decimal, whole } from "./numbers.js";
import { cut, itemName } from "./words.js";
import { since, world } from "./world.js";

const PAGE = 10;
const EVERY_MS = 10000;

// The values of `after` of the pages before this one, and of this one.
let [search, pages, next, ticket, text, asked, size, later] = ["", [null], null, 0, "", 0, 0, 0];

const query = () => {
  const parameters = new URLSearchParams({ limit: String(PAGE), counts: "true" });
  if (search) parameters.set("search", search);
  if (pages.at(-1) !== null) parameters.set("after", pages.at(-1));
  return `/v1/items?${parameters}`;
};

function row(item, counts) {
  const cell = (value) => el("td", { class: "number" }, value);
  const isAvailable = item.available !== false;
  return el("tr", { class: isAvailable ? null : "away" },
    el("th", { scope: "row" }, itemName(item)),
    counts ? [cell(whole(counts.shown)), cell(whole(counts.rewards)), cell(counts.reward_rate === null ? "–" : decimal(counts.reward_rate, 3))] : null,
    el("td", {}, isAvailable ? "yes" : "no"),
    el("td", { class: "tags" }, (item.tags ?? []).slice(0, 5).map((tag) => [cut(tag, 30, "tag"), " "]), item.tags?.length > 5 ? `+${item.tags.length - 5}` : null));
}

function draw(answer) {
  const counted = answer.counts;
  const first = (pages.length - 1) * PAGE + 1;
  next = answer.next;
  $("items-count").textContent = search ? `${count(answer.total, "item")} found` : count(answer.total, "item");
  const numbers = counted ? ["Times shown", "Rewards", "Mean reward"] : [];
  const heads = ["Item", ...numbers, "Available", "Tags"].map((name) => el("th", { scope: "col", class: numbers.includes(name) ? "number" : null }, name));
  const table = answer.items.length
    ? el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Items" },
      el("table", { class: "items" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, answer.items.map((item, n) => row(item, counted?.[n])))))
    : el("p", { class: "muted" }, search ? "No item has this text in its id, its title or a tag." : "The catalogue is empty.");
  const from = answer.items.length ? `${whole(first)} to ${whole(first + answer.items.length - 1)} of ${whole(answer.total)}` : "";
  const note = !counted ? "Times shown and rewards are not counted: the server has no journal (--journal-days 0)."
    : answer.counted_since ? ["Times shown and rewards are counted since the first one, ", since(answer.counted_since), "."] : null;
  const missing = answer.missing_nodes?.length ? ` What these nodes counted is missing, because they do not answer: ${answer.missing_nodes.join(", ")}.` : null;
  fill($("items-card"), table, answer.items.length && (note || missing) ? el("p", { class: "note" }, note, missing) : null);
  $("items-page").textContent = from;
  $("items-pages").hidden = pages.length === 1 && !next;
  // Not disabled: that would take the focus away.
  $("items-before").setAttribute("aria-disabled", String(pages.length === 1));
  $("items-next").setAttribute("aria-disabled", String(!next));
}

async function load() {
  ticket += 1;
  const mine = ticket;
  asked = Date.now();
  try {
    const answer = await get(query());
    if (mine !== ticket) return;
    const now = JSON.stringify([answer, pages, search]);
    if (now !== text) draw(answer);
    text = now;
  } catch (error) {
    if (mine !== ticket) return;
    text = "";
    // The item that the page begins after was removed.
    if (error.status === 404 && pages.length > 1) {
      pages = [null];
      load();
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
    pages = [null];
    load();
  };
  $("items-form").addEventListener("submit", (event) => {
    event.preventDefault();
    begin();
  });
  $("items-search").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(begin, 250);
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
