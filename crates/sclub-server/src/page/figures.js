// The header and the figures.

import { $, el } from "./dom.js";
import { count, decimal, lasting, short, whole } from "./numbers.js";
import { isSoft, now, world } from "./world.js";

export function drawHeader() {
  const state = world.state;
  if (!state) return;
  document.body.classList.toggle("soft", isSoft());
  const parts = [`policy ${state.policy}`, ...(isSoft() ? [] : [`preset ${state.preset}`]), state.dim ? count(state.dim, "feature") : "no features yet"];
  $("about").textContent = parts.join(" · ");
  $("version").textContent = `sclub ${state.version ?? ""} · up ${lasting(state.uptime_seconds ?? 0)} · ${count(state.events ?? 0, "event")} in the log`;
  $("writable").hidden = false;
  $("writable").textContent = state.writable ? "writable" : "read-only";
  $("writable").classList.toggle("warn", !state.writable);
  say(state);
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`.replace(/\.\.$/, ".");

// The most important thing that is wrong: a heading, and what to do about it.
function warningOf(state) {
  if (!state.writable) return ["The server is read-only and learns nothing", [el("p", {}, sentence(state.read_only_reason ?? "the data folder cannot be written"))]];
  if (!state.reward_warning) return null;
  const code = (text) => el("code", {}, text);
  return ["All rewards are equal, so nothing can be learned", [
    el("p", {}, sentence(state.reward_warning)),
    el("ul", {},
      el("li", {}, "Send zeros with each click: ", code('{"decision": "…", "reward": 1, "others": 0}'), " in ", el("a", { href: "/docs#/recommend/feedback" }, "POST /v1/feedback"), "."),
      el("li", {}, "If your application knows clicks only, start the server with ", code("--unanswered 0 --after 30m"), ": items without a click get 0 after that time, and a late click replaces it."))]];
}

function say(state) {
  const found = warningOf(state);
  const text = JSON.stringify([state.writable, state.read_only_reason, state.reward_warning]);
  $("banner").hidden = !found;
  if ($("banner").dataset.text === text) return;
  $("banner").dataset.text = text;
  $("banner").replaceChildren(...(found ? [el("strong", {}, found[0]), ...found[1]] : []));
}

function put(id, text, under, unit) {
  $(`figure-${id}`).replaceChildren(text, ...(unit && text !== "–" ? [el("span", { class: "unit" }, `\u202f${unit}`)] : []));
  $(`under-${id}`).textContent = under ?? "";
}

// The mean reward of a time span.
function rewardOver(ms) {
  let [sum, weight] = [0, 0];
  for (const point of world.seconds()) {
    if (point.at < now() - ms || point.reward === null) continue;
    sum += point.reward * point.rewards;
    weight += point.rewards;
  }
  return weight > 0 ? sum / weight : null;
}

export function drawFigures() {
  const state = world.state;
  if (!state) return;
  const live = world.latest;
  const figures = { ...state, ...(live ?? {}) };
  const recent = rewardOver(60000);
  const ever = state.rewards > 0 ? state.reward_sum / state.rewards : null;
  const alone = state.clustering ? null : figures.users > 0 ? (100 * figures.singletons) / figures.users : null;
  const share = state.clustering && figures.users > 0 ? 100 * state.clustering.unplaced : alone;
  put("users", whole(figures.users), state.expected_users > 0 ? `${whole(state.expected_users)} expected` : "");
  const each = figures.clusters > 0 && figures.users > 0 ? figures.users / figures.clusters : null;
  put("clusters", whole(figures.clusters), each === null ? "" : `about ${count(Math.round(each), "user")} each`);
  $("name-singletons").textContent = isSoft() ? "Not placed" : "Users alone";
  const whom = isSoft() ? "of the users, at the last fit" : `${whole(figures.singletons)} of ${whole(figures.users)}`;
  put("singletons", share === null ? "–" : decimal(share, share < 10 ? 1 : 0), share === null ? "" : whom, "%");
  put("rounds", whole(figures.rounds), `with ${count(state.rewards, "reward")}`);
  put("items", whole(figures.items), "in the catalogue");
  put("reward", decimal(recent ?? ever ?? NaN, 3), recent === null ? (ever === null ? "" : "since the first reward") : `in the last minute; ${decimal(ever ?? NaN, 3)} in all`);
  put("recommends", live ? whole(live.recommends_per_second) : "–", live ? `and ${count(live.rewards_per_second, "reward")}` : "");
  put("p99", live?.recommend_p99_ms == null ? "–" : short(live.recommend_p99_ms), live ? "in the last second" : "", "ms");
}
