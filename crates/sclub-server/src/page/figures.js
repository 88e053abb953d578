// The header and the figures.

import { addressOf, docs, space } from "./api.js";
import { $, el } from "./dom.js";
import { count, decimal, lasting, short, whole } from "./numbers.js";
import { hasClusters, isFixed, isSoft, now, since, unclustered, world } from "./world.js";

const LOST_MS = 3000;

export function drawHeader() {
  const state = world.state;
  if (!state) return;
  document.body.classList.toggle("soft", isSoft());
  document.body.classList.toggle("fixed", isFixed());
  document.body.classList.toggle("unclustered", !hasClusters());
  $("unclustered-text").textContent = hasClusters() ? "" : unclustered(state.policy);
  const parts = [...(space ? [`space ${space}`] : []), `policy ${state.policy}`, ...(isSoft() ? [] : [`preset ${state.preset}`]), state.dim ? count(state.dim, "feature") : "no features yet"];
  $("about").textContent = parts.join(" · ");
  $("version").textContent = `sclub ${state.version ?? ""} · up ${lasting(state.uptime_seconds ?? 0)} · ${count(state.events ?? 0, "event")} in the log`;
  $("writable").textContent = state.writable ? "writable" : "read-only";
  $("writable").classList.toggle("warn", !state.writable);
  $("over-note").textContent = state.node ? `Requests that ${state.node} has answered, and rewards that it has learned. Each node has its own.` : "";
  warn();
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`.replace(/\.\.$/, ".");

// The most important thing that is wrong: a heading, and what to do about it.
function warningOf(state, isLost) {
  if (isLost) return ["The server does not answer", [el("p", {}, "Figures are as they were ", since(world.lost), ". The page connects again by itself.")]];
  if (!state.writable) return ["The server is read-only and learns nothing", [el("p", {}, sentence(state.read_only_reason ?? "the data folder cannot be written"))]];
  if (!state.reward_warning) return null;
  const code = (text) => el("code", {}, text);
  // The server's sentence, up to what to do about it.
  return [sentence(state.reward_warning.split(";")[0]), [
    el("ul", {},
      el("li", {}, "Send zeros with each click: ", code('{"decision": "…", "reward": 1, "others": 0}'), " in ", el("a", { href: docs("#/recommend/feedback") }, "POST /v1/feedback"), "."),
      el("li", {}, "If your application knows clicks only, start the server with ", code("--unanswered 0 --after 30m"), ": items without a click get 0 after that time, and a late click replaces it."))]];
}

function noSpace(names) {
  const link = (name, n) => [n ? ", " : "", el("a", { href: addressOf(name) }, name)];
  return [`There is no space ‘${space}’.`, [el("p", {}, names.length ? ["Spaces: ", names.map(link), "."] : "The server does not say which ones there are.")]];
}

// Shows what is wrong. A connection that is lost for a moment is not worth a warning.
export function warn() {
  const { others, state } = world;
  if (!others && !state) return;
  const isLost = world.lost !== null && now() - world.lost > LOST_MS;
  $("writable").hidden = isLost || others !== null;
  const found = others ? noSpace(others) : warningOf(state, isLost);
  const text = JSON.stringify([others, isLost, state?.writable, state?.read_only_reason, state?.reward_warning]);
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
  const live = world.lost ? null : world.latest;
  // The last figures stay while the connection is lost. Rates do not.
  const figures = { ...state, ...(world.latest ?? {}) };
  const here = state.node ? ", on this node" : "";
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
  put("reward", decimal(recent ?? ever ?? NaN, 3), recent === null ? (ever === null ? "" : "since the first reward") : `in the last minute${here}; ${decimal(ever ?? NaN, 3)} in all`);
  put("recommends", live ? whole(live.recommends_per_second) : "–", live ? `and ${count(live.rewards_per_second, "reward")}${here}` : "");
  put("p99", live?.recommend_p99_ms == null ? "–" : short(live.recommend_p99_ms), live ? "in the last second" : "", "ms");
}
