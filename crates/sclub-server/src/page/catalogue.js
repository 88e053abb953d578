// The catalogue: a page of items with titles, tags, availability and counts, and a search.

import { get } from "./api.js";
import { $, el, fill } from "./dom.js";
import { refusedOr } from "./key.js";
import { count, decimal, whole } from "./numbers.js";
import { itemName } from "./words.js";
import { since, world } from "./world.js";

const PAGE = 10;
const EVERY_MS = 10000;

// The values of `after` of the pages before this one, and of this one.
let [search, pages, next, ticket, text, asked] = ["", [null], null, 0, "", 0];

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
    el("td", {}, (item.tags ?? []).slice(0, 5).map((tag) => [el("span", { class: "tag" }, tag), " "]), item.tags?.length > 5 ? `+${item.tags.length - 5}` : null),
    el("td", {}, isAvailable ? "yes" : "no"),
    counts ? [cell(whole(counts.shown)), cell(whole(counts.rewards)), cell(counts.reward_rate === null ? "–" : decimal(counts.reward_rate, 3))] : null);
}

function draw(answer) {
  const counted = answer.counts;
  const first = (pages.length - 1) * PAGE + 1;
  next = answer.next;
  $("items-count").textContent = search ? `${count(answer.total, "item")} found` : count(answer.total, "item");
  const names = ["Item", "Tags", "Available"];
  const heads = [...names.map((name) => el("th", { scope: "col" }, name)),
    ...(counted ? ["Times shown", "Rewards", "Mean reward"] : []).map((name) => el("th", { scope: "col", class: "number" }, name))];
  const table = answer.items.length
    ? el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Items" },
      el("table", { class: "items" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, answer.items.map((item, n) => row(item, counted?.[n])))))
    : el("p", { class: "muted" }, search ? "No item has this text in its id, its title or a tag." : "The catalogue is empty.");
  const from = answer.items.length ? `${whole(first)} to ${whole(first + answer.items.length - 1)} of ${whole(answer.total)}` : "";
  fill($("items-card"), table, answer.counted_since && answer.items.length
    ? el("p", { class: "note" }, "Times shown and rewards are counted since the first one, ", since(answer.counted_since), ".") : null);
  $("items-page").textContent = from;
  $("items-pages").hidden = pages.length === 1 && !next;
  $("items-before").disabled = pages.length === 1;
  $("items-next").disabled = !next;
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

export function refresh(atOnce = false) {
  $("catalogue").hidden = !(world.state?.items > 0);
  if (!$("catalogue").hidden && (atOnce || Date.now() - asked > EVERY_MS)) load();
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
    if (pages.length > 1) pages.pop();
    load();
  });
  $("items-next").addEventListener("click", () => {
    if (next !== null) pages.push(next);
    load();
  });
}
