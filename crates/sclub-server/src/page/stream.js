// The connection: what the server is asked at first, then the stream of what happens.

import { ApiError, failure, headers } from "./api.js";
import { askForKey, live, nextKey } from "./key.js";

const SILENCE_MS = 10000;

// Gives a block of the stream to whom it is for.
function dispatch(block, takes) {
  let [name, data] = ["message", []];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "event") name = value;
    else if (field === "data") data.push(value);
  }
  if (!data.length || !Object.hasOwn(takes, name)) return;
  let parsed = null;
  try { parsed = JSON.parse(data.join("\n")); } catch { return; }
  takes[name](parsed);
}

async function openStream(signal) {
  const response = await fetch("/v1/stream", { headers: headers({ Accept: "text/event-stream" }), cache: "no-store", signal });
  if (!response.ok) throw await failure(response);
  return response;
}

// Reads until the stream ends. Fetch, not EventSource: that one sends no header with a key.
async function follow(response, takes, alive) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    rest = (rest + value).replace(/\r\n/g, "\n");
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) dispatch(block, takes);
  }
}

const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

async function connection(refreshAll, takes, connected) {
  const control = new AbortController();
  let watch = 0;
  const alive = () => {
    clearTimeout(watch);
    watch = setTimeout(() => control.abort(), SILENCE_MS);
  };
  try {
    alive();
    // Opened first, so that no change falls between what is fetched and what is streamed.
    const opening = openStream(control.signal).then((response) => ({ response }), (error) => ({ error }));
    await refreshAll();
    const { response, error } = await opening;
    if (error) throw error;
    alive();
    connected();
    await follow(response, takes, alive);
  } finally {
    clearTimeout(watch);
    control.abort();
  }
}

// Goes on for ever: `refreshAll` fetches everything, `takes` has a function for each kind of event.
export async function run(refreshAll, takes) {
  let wait = 500;
  for (;;) {
    try {
      await connection(refreshAll, takes, () => {
        wait = 500;
        live("connected", "live");
      });
    } catch (error) {
      if (error instanceof ApiError && error.refused) {
        askForKey(error);
        await nextKey();
        live("connecting", "connecting");
        wait = 500;
        continue;
      }
      if (!(error instanceof ApiError) && !["TypeError", "AbortError", "TimeoutError"].includes(error.name)) console.error(error);
    }
    live("reconnecting", "reconnecting");
    await pause(wait * (0.75 + Math.random() / 2));
    wait = Math.min(wait * 2, 15000);
  }
}
