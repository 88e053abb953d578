// The dashboard: passes fetched data and the events of the stream to the parts of the page.

import { go, named } from "./address.js";
import { docs, get } from "./api.js";
import * as catalogue from "./catalogue.js";
import * as clusterCard from "./cluster_card.js";
import * as clustering from "./clustering.js";
import { $ } from "./dom.js";
import * as events from "./events.js";
import * as experiments from "./experiments.js";
import { drawFigures, drawHeader, warn } from "./figures.js";
import { refusedOr, wireKey } from "./key.js";
import * as liveCharts from "./live_charts.js";
import * as map from "./map.js";
import * as nodes from "./nodes.js";
import * as start from "./start.js";
import { run } from "./stream.js";
import { themeSwitch } from "./theme.js";
import * as userCard from "./user_card.js";
import { age, isSoft, note, now, world } from "./world.js";

const POLL_MS = 2000;
// The state, and with it the experiments, is read so often at most; less than five polls, which timers do not keep exactly.
const STATE_MS = 5 * POLL_MS - 500;
const still = matchMedia("(prefers-reduced-motion: reduce)");

async function route() {
  const { kind, id, scroll } = named();
  if (kind === "user") {
    if (document.activeElement !== $("user-search")) $("user-search").value = id;
    // Both cards first: their heights change the position of what is scrolled to.
    await Promise.all([userCard.load(id), clusterCard.refresh()]);
    if (scroll) reveal($("user-title"));
  } else if (kind === "cluster" && /^\d+$/.test(id)) {
    map.choose(Number(id));
    await clusterCard.load(Number(id));
    if (scroll) reveal($("cluster-title"));
  } else {
    map.choose(null);
    clusterCard.none();
  }
}

function reveal(element) {
  const box = element.getBoundingClientRect();
  if (box.top >= 0 && box.top < innerHeight * 0.6) return;
  element.scrollIntoView({ block: "start", behavior: still.matches ? "auto" : "smooth" });
}

function takeState(state) {
  const restarted = world.state && state.events < world.state.events;
  if (restarted) {
    events.clear();
    world.joined.clear();
    world.bornOf.clear();
    map.forget();
  }
  // Another policy has other clusters, which the next poll fetches.
  if (world.state && state.policy !== world.state.policy) world.dirty = true;
  world.state = state;
  if (state.partitions) nodes.refresh();
  else experiments.refresh().catch(() => { reading.isStale = true; });
  if (world.latest && restarted) world.latest = null;
  drawHeader();
  drawFigures();
  start.refresh();
  catalogue.refresh();
  clustering.take(state.clustering);
}

// Whether something has changed since the state was read last, and when that was. An earlier answer that comes late is left out: it
// would look as if the server had another history.
const reading = { isStale: false, at: -Infinity, number: 0, waits: 0 };

async function fetchState() {
  reading.number += 1;
  const mine = reading.number;
  reading.isStale = false;
  reading.at = performance.now();
  reading.waits += 1;
  try {
    const state = await get("/v1/state");
    return mine === reading.number ? state : null;
  } catch (error) {
    reading.isStale = true;
    throw error;
  } finally {
    reading.waits -= 1;
  }
}

// Reads the state now. While it is read already, the next poll does so once more.
async function readState() {
  if (reading.waits) {
    reading.isStale = true;
    return;
  }
  const state = await fetchState();
  if (state) takeState(state);
}

// The users that the server had before the clusters were asked for: a policy that began with an experiment may know fewer.
const usersNow = () => world.latest?.users ?? world.state?.users ?? 0;

function takeClusters(answer, usersBefore) {
  world.clusters = (answer.clusters ?? []).slice(0, map.DRAWN);
  world.total = answer.total ?? world.clusters.length;
  const known = world.clusters.reduce((sum, cluster) => sum + cluster.users, 0);
  const isWhole = world.total === world.clusters.length && !isSoft() && !world.state?.partitions;
  world.known = isWhole && world.hadExperiment && known < usersBefore ? known : null;
  map.place();
  map.drawMap();
  map.choose(map.marked.chosen);
}

async function refreshAll() {
  // The clusters after the state, so that they have all its users.
  const reading = async () => {
    const state = await fetchState();
    // Whether there was an experiment decides what the first cards say.
    if (state && !state.partitions) await experiments.refresh().catch(() => {});
    return [state, usersNow(), await get(`/v1/clusters?limit=${map.DRAWN}`)];
  };
  const [[state, before, clusters], past] = await Promise.all([reading(), get("/v1/history?limit=100"), liveCharts.refresh(true)]);
  // Until here, nothing is known that could be shown.
  document.body.classList.add("known");
  if (state) takeState(state);
  liveCharts.drawCharts();
  for (const change of [...past.changes].reverse()) note(change);
  world.dirty = false;
  takeClusters(clusters, state?.users ?? before);
  events.add(past.changes, past.total);
  events.flush();
  if (!document.documentElement.dataset.ready) {
    document.documentElement.dataset.ready = "1";
    route();
    const mover = past.changes.find((change) => change.user);
    if (mover && !location.hash.startsWith("#user/")) userCard.load(mover.user, true);
  } else {
    clusterCard.refresh();
    userCard.refresh();
  }
}

let polling = false;

async function pollClusters() {
  if (!world.dirty) return;
  world.dirty = false;
  try {
    const users = usersNow();
    takeClusters(await get(`/v1/clusters?limit=${map.DRAWN}`), users);
  } catch (error) {
    world.dirty = true;
    throw error;
  }
  clusterCard.refresh();
  userCard.refresh();
  catalogue.refresh();
}

// What has changed is fetched with the next poll, and the state when it is due: the last change is seen without further ones.
async function poll() {
  if (document.hidden || polling || !world.state || $("live").dataset.state !== "connected") return;
  polling = true;
  try {
    await pollClusters();
    if (reading.isStale && performance.now() - reading.at >= STATE_MS) await readState();
  } catch (error) {
    refusedOr(error, () => {});
  } finally {
    polling = false;
  }
}

// True if the server has learned a reward of a user, or shown the user something.
async function isKnown(id) {
  const path = `/v1/users/${encodeURIComponent(id)}`;
  return get(path).then(() => true, async (error) => error.status === 404 && (await get(`${path}/recent`)).decisions.length > 0);
}

let searches = 0;

// Shows the user of an id that was typed. Blanks around it belong to it if there is such a user.
async function showUser(typed) {
  searches += 1;
  const mine = searches;
  const trimmed = typed.trim();
  const isExact = typed === trimmed || await isKnown(typed).catch(() => false);
  const id = isExact ? typed : trimmed;
  if (id && mine === searches) go(`#user/${encodeURIComponent(id)}`);
}

let wasChanged = false;

const handlers = {
  state(state) {
    world.clock = state.at - Date.now();
    const seen = `${state.events} ${state.rounds} ${state.users} ${state.clusters}`;
    // Recommendations are no events. The second after a change counts too: items are counted a moment later.
    const isChanged = seen !== world.seen || state.recommends_per_second > 0;
    if (isChanged || wasChanged) world.dirty = reading.isStale = true;
    wasChanged = isChanged;
    world.seen = seen;
    world.latest = state;
    liveCharts.remember(state);
    const fits = clustering.live(state);
    const isWritable = world.unwritable === null;
    if (state.writable !== isWritable) world.unwritable = state.writable ? null : now();
    if (world.state && (fits || state.writable !== isWritable || state.items !== world.state.items)) readState().catch(() => {});
    if (document.hidden) return;
    drawFigures();
    start.refresh();
    liveCharts.drawCharts();
  },
  change(change) {
    note(change);
    events.add([change]);
  },
};

themeSwitch($("theme"));
wireKey();
$("docs").href = docs();
liveCharts.wireRanges();
catalogue.wireCatalogue();
map.wireMap(clusterCard.soon);
clusterCard.none();
userCard.none();
$("user-form").addEventListener("submit", (event) => {
  event.preventDefault();
  showUser($("user-search").value);
});
addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  drawFigures();
  events.flush();
  if (world.state) map.drawMap();
  liveCharts.refresh();
  clustering.draw();
  poll();
});
setInterval(poll, POLL_MS);
setInterval(() => {
  if (document.hidden) return;
  age();
  if (world.state) warn();
  if (!world.lost) return;
  drawFigures();
  liveCharts.drawCharts();
}, 1000);
run(refreshAll, handlers);
