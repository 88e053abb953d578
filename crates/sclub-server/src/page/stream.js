// The connection: fetches everything once, then follows the stream of events.

import { ApiError, failure, headers, key, placed } from "./api.js";
import { askForKey, live, nextKey } from "./key.js";
import { noSuchSpace } from "./spaces.js";
import { world } from "./world.js";

const SILENCE_MS = 10000;
const LONGEST_MS = 15000;

// Passes a block of the stream to its handler.
function dispatch(block, handlers) {
  let [name, data] = ["message", []];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "event") name = value;
    else if (field === "data") data.push(value);
  }
  if (!data.length || !Object.hasOwn(handlers, name)) return;
  let parsed = null;
  try { parsed = JSON.parse(data.join("\n")); } catch { return; }
  handlers[name](parsed);
}

async function openStream(signal) {
  const sentKey = key();
  const response = await fetch(placed("/v1/stream"), { headers: headers({ Accept: "text/event-stream" }), cache: "no-store", signal });
  if (!response.ok) throw await failure(response, sentKey);
  return response;
}

// Reads until the stream ends. Uses fetch, because EventSource cannot send a header with a key.
async function follow(response, handlers, alive) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    rest = (rest + value).replace(/\r\n/g, "\n");
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) dispatch(block, handlers);
  }
}

const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

async function connection(refreshAll, handlers, connected) {
  const control = new AbortController();
  let watch = 0;
  const alive = () => {
    clearTimeout(watch);
    watch = setTimeout(() => control.abort(), SILENCE_MS);
  };
  try {
    alive();
    // Opened before fetching, so that no change is missed between the two.
    const opening = openStream(control.signal).then((response) => ({ response }), (error) => ({ error }));
    await refreshAll();
    const { response, error } = await opening;
    if (error) throw error;
    alive();
    connected();
    await follow(response, handlers, alive);
  } finally {
    clearTimeout(watch);
    control.abort();
  }
}

// Runs forever: `refreshAll` fetches everything, `handlers` has a function for each kind of event.
export async function run(refreshAll, handlers) {
  let wait = 500;
  for (;;) {
    try {
      await connection(refreshAll, handlers, () => {
        wait = 500;
        world.others = null;
        live("connected", "live");
      });
    } catch (error) {
      if (error instanceof ApiError && error.refused) {
        if (askForKey(error)) await nextKey();
        live("connecting", "connecting");
        wait = 500;
        continue;
      }
      if (error instanceof ApiError && error.code === "unknown_space") {
        live("refused", "no such space");
        await noSuchSpace();
        // It may be made later.
        await pause(LONGEST_MS);
        continue;
      }
      if (!(error instanceof ApiError) && !["TypeError", "AbortError", "TimeoutError"].includes(error.name)) console.error(error);
    }
    live("reconnecting", "reconnecting");
    await pause(wait * (0.75 + Math.random() / 2));
    wait = Math.min(wait * 2, LONGEST_MS);
  }
}
