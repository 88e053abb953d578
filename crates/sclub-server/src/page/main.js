// The dashboard: passes fetched data and the events of the stream to the parts of the page.

import { go, named } from "./address.js";
import { get } from "./api.js";
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
import { age, note, world } from "./world.js";

const POLL_MS = 2000;
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
  world.state = state;
  if (state.partitions) nodes.refresh();
  else experiments.refresh();
  if (world.latest && restarted) world.latest = null;
  drawHeader();
  drawFigures();
  start.refresh();
  catalogue.refresh();
  clustering.take(state.clustering);
}

function takeClusters(answer) {
  world.clusters = (answer.clusters ?? []).slice(0, map.DRAWN);
  world.total = answer.total ?? world.clusters.length;
  map.place();
  map.drawMap();
  map.choose(map.marked.chosen);
}

async function refreshAll() {
  const [state, clusters, past] = await Promise.all([
    get("/v1/state"), get(`/v1/clusters?limit=${map.DRAWN}`), get("/v1/history?limit=100"), liveCharts.refresh(true)]);
  // Until here, nothing is known that could be shown.
  document.body.classList.add("known");
  takeState(state);
  liveCharts.drawCharts();
  for (const change of [...past.changes].reverse()) note(change);
  world.dirty = false;
  takeClusters(clusters);
  events.add(past.changes, past.total);
  events.flush();
  if (!document.documentElement.dataset.ready) {
    document.documentElement.dataset.ready = "1";
    route();
    const mover = past.changes.find((change) => change.user);
    if (mover && !location.hash.startsWith("#user/")) userCard.load(mover.user, true);
  }
}

let polling = false;
let polls = 0;

async function poll() {
  if (!world.dirty || document.hidden || polling || !world.state || $("live").dataset.state !== "connected") return;
  polling = true;
  world.dirty = false;
  polls += 1;
  try {
    takeClusters(await get(`/v1/clusters?limit=${map.DRAWN}`));
    clusterCard.refresh();
    userCard.refresh();
    catalogue.refresh();
    if (polls % 5 === 0) takeState(await get("/v1/state"));
  } catch (error) {
    world.dirty = true;
    refusedOr(error, () => {});
  } finally {
    polling = false;
  }
}

const handlers = {
  state(state) {
    world.clock = state.at - Date.now();
    const seen = `${state.events} ${state.rounds} ${state.users} ${state.clusters}`;
    if (seen !== world.seen) world.dirty = true;
    world.seen = seen;
    world.latest = state;
    liveCharts.remember(state);
    const fits = clustering.live(state);
    if (world.state && (fits || state.writable !== world.state.writable || state.items !== world.state.items)) get("/v1/state").then(takeState, () => {});
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
liveCharts.wireRanges();
catalogue.wireCatalogue();
map.wireMap(clusterCard.soon);
clusterCard.none();
userCard.none();
$("user-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = $("user-search").value.trim();
  if (id) go(`#user/${encodeURIComponent(id)}`);
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
