// The state of the connection, and the API key.

import { ApiError, DEFAULT_SPACE, key, setKey, space } from "./api.js";
import { $ } from "./dom.js";
import { offerSpaces } from "./spaces.js";
import { now, world } from "./world.js";

export function live(state, text) {
  world.lost = state === "reconnecting" ? world.lost ?? now() : null;
  if ($("live").dataset.state === state && $("live").textContent === text) return;
  $("live").dataset.state = state;
  $("live").textContent = text;
}

export function refusedOr(error, otherwise) {
  if (error instanceof ApiError && error.refused) askForKey(error);
  else otherwise(error instanceof ApiError ? `The server says: ${error.message}.` : "The server does not answer.");
}

let keyGiven = null;

// Waits until a key has been entered.
export async function nextKey() {
  await new Promise((given) => { keyGiven = given; });
  keyGiven = null;
}

// A key that the server does not know is not kept. One of another space is: `offerSpaces` goes there with it.
// Returns false for the answer to an earlier key, which says nothing about this one.
export function askForKey(error) {
  if (error.key !== key()) return false;
  live("refused", "a key is required");
  if (error.key === null) $("key-why").textContent ||= "This server requires an API key.";
  else if (error.status === 403) $("key-why").textContent = `This key is not a key of the space ‘${space ?? DEFAULT_SPACE}’, or there is no such space.`;
  else {
    setKey(null);
    showForget();
    $("key-why").textContent = "The server does not know this key. It was not kept.";
  }
  if ($("key-form").hidden) {
    $("key-form").hidden = false;
    $("key").focus();
  }
  return true;
}

export function wireKey() {
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setKey($("key").value.trim());
    $("key-why").textContent = "";
    $("key").value = "";
    $("key-form").hidden = true;
    showForget();
    offerSpaces();
    if (keyGiven) keyGiven();
    else location.reload();
  });
  $("forget-key").addEventListener("click", () => {
    setKey(null);
    location.reload();
  });
  showForget();
  offerSpaces();
}

function showForget() {
  $("forget-key").hidden = !key();
}
