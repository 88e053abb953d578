// The state of the connection, and the API key.

import { ApiError, key, setKey } from "./api.js";
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

export function askForKey(error) {
  live("refused", "a key is required");
  $("key-why").textContent = error.status === 403 ? "The role of this key does not allow reading." : key() ? "The server does not know this key." : "This server requires an API key.";
  if ($("key-form").hidden) {
    $("key-form").hidden = false;
    $("key").focus();
  }
}

export function wireKey() {
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setKey($("key").value.trim());
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
