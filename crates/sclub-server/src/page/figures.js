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
  say(warningOf(state));
}

// The most important thing that is wrong, as a sentence.
function warningOf(state) {
  const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`.replace(/\.\.$/, ".");
  if (!state.writable) return `Read-only, so nothing is learned. ${sentence(state.read_only_reason ?? "the data folder cannot be written")}`;
  return state.reward_warning ? sentence(state.reward_warning) : null;
}

function say(text) {
  if ($("banner").textContent !== (text ?? "")) $("banner").textContent = text ?? "";
  $("banner").hidden = !text;
}

function put(id, text, under, unit) {
  $(`figure-${id}`).replaceChildren(text, ...(unit && text !== "–" ? [el("span", { class: "unit" }, `\u202f${unit}`)] : []));
  $(`under-${id}`).textContent = under ?? "";
}

// The mean reward of a time span, each second weighted by its number of rewards.
function rewardOver(ms) {
  let [sum, weight] = [0, 0];
  for (const point of world.seconds) {
    if (point.at < now() - ms || point.reward === null) continue;
    sum += point.reward * point.feedbacks;
    weight += point.feedbacks;
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
  put("clusters", whole(figures.clusters), each === null ? "" : `${short(each)} users each`);
  $("name-singletons").textContent = state.clustering ? "Not placed" : "Users alone";
  const whom = state.clustering ? "of the users, at the last fit" : `${whole(figures.singletons)} of ${whole(figures.users)}`;
  put("singletons", share === null ? "–" : decimal(share, share < 10 ? 1 : 0), share === null ? "" : whom, "%");
  put("rounds", whole(figures.rounds), `${whole(figures.events)} events`);
  put("items", whole(figures.items), "in the catalogue");
  put("reward", decimal(recent ?? ever ?? NaN, 3), recent === null ? (ever === null ? "" : "since the first reward") : `1 min; ${decimal(ever ?? NaN, 3)} ever`);
  put("recommends", live ? whole(live.recommends_per_second) : "–", live ? `${whole(live.feedbacks_per_second)} feedbacks` : "");
  put("p99", live?.recommend_p99_ms == null ? "–" : short(live.recommend_p99_ms), live ? "in the last second" : "", "ms");
}
