// The header and the figures.

import { addressOf, docs, space } from "./api.js";
import { $, el } from "./dom.js";
import { count, decimal, lasting, short, whole } from "./numbers.js";
import { asSentence } from "./words.js";
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
  $("over-note").textContent = state.node ? `Requests that ${state.node} has answered, and rewards that it has learned. Each node has its own.` : "";
  warn();
}

// The stream of a node may say so earlier than its state, which waits for all partitions. One that changes its owner has none for a moment.
const isReadOnly = (state) => !state.writable || (world.unwritable !== null && now() - world.unwritable > LOST_MS);

// What the operator can do about a reason of the system.
const REMEDIES = [
  [/no space left|quota exceeded/i, "Free some space on the disk of the data folder."],
  [/^the disk has not answered/i, "Look at the disk of the data folder, and at the network if it is there."],
  [/read-only file system|input\/output error/i, "Look at the disk of the data folder: it has failed, or is mounted read-only."],
  [/permission denied/i, "Let the server’s user write to the data folder again."],
  [/too many open files/i, "Allow the server more open files, or close some connections."],
];

function readOnlyWarning(state) {
  const { node, read_only_reason: reason } = state;
  const said = reason ? `${asSentence(reason)} ` : "";
  const [title, remedy] = node
    ? ["Not all partitions can be written", "Is NATS running, with a majority of its servers? The nodes try again all the time, and go on by themselves once they reach it."]
    : ["The server is read-only and learns nothing",
      `${REMEDIES.find(([pattern]) => pattern.test(reason ?? ""))?.[1] ?? "The server’s log has the details."} The server tries again all the time, and goes on by itself.`];
  return [title, [el("p", {}, `${said}${remedy}`), el("p", {}, "Recommendations go on. Feedback that is not accepted must be sent again; it counts once.")]];
}

// The most important thing that is wrong: a heading, and what to do about it.
function warningOf(state, isLost) {
  if (isLost) return ["The server does not answer", [el("p", {}, "Figures are as they were ", since(world.lost), ". The page connects again by itself.")]];
  if (isReadOnly(state)) return readOnlyWarning(state);
  if (!state.reward_warning) return null;
  const code = (text) => el("code", {}, text);
  // The server's sentence, up to what to do about it.
  return [asSentence(state.reward_warning.split(";")[0]), [
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
  const readOnly = Boolean(state) && isReadOnly(state);
  $("writable").textContent = readOnly ? "read-only" : "writable";
  $("writable").classList.toggle("warn", readOnly);
  $("writable").hidden = isLost || others !== null;
  const found = others ? noSpace(others) : warningOf(state, isLost);
  const text = JSON.stringify([others, isLost, readOnly, state?.read_only_reason, state?.reward_warning]);
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
  const known = world.known ?? figures.users;
  const alone = state.clustering || known === 0 ? null : (100 * figures.singletons) / known;
  const share = state.clustering && figures.users > 0 ? 100 * state.clustering.unplaced : alone;
  put("users", whole(figures.users), state.expected_users > 0 ? `${whole(state.expected_users)} expected` : "");
  // Of a policy with fits, by its clusters: it may have begun with an experiment, and not know all users.
  const isListed = isSoft() && world.clusters.length > 0 && world.clusters.length === world.total && !state.partitions;
  const mean = isListed ? world.clusters.reduce((sum, cluster) => sum + cluster.users, 0) / world.total : figures.users / figures.clusters;
  const each = figures.clusters > 0 && figures.users > 0 ? mean : null;
  put("clusters", whole(figures.clusters), world.known !== null ? `with ${whole(world.known)} of ${count(figures.users, "user")}`
    : each === null ? "" : `about ${count(Math.round(each), "user")} each`);
  $("name-singletons").textContent = isSoft() ? "Not placed" : "Users alone";
  const whom = isSoft() ? "of the users, at the last fit" : `${whole(figures.singletons)} of ${whole(known)}`;
  put("singletons", share === null ? "–" : decimal(share, share < 10 ? 1 : 0), share === null ? "" : whom, "%");
  put("rounds", whole(figures.rounds), `with ${count(state.rewards, "reward")}`);
  put("items", whole(figures.items), "in the catalogue");
  put("reward", decimal(recent ?? ever ?? NaN, 3), recent === null ? (ever === null ? "" : "since the first reward") : `in the last minute${here}; ${decimal(ever ?? NaN, 3)} in all`);
  put("recommends", live ? whole(live.recommends_per_second) : "–", live ? `and ${count(live.rewards_per_second, "reward")}${here}` : "");
  put("p99", live?.recommend_p99_ms == null ? "–" : short(live.recommend_p99_ms), live ? "in the last second" : "", "ms");
}
