// Whether there is a connection, and the key that a server may ask for.

import { ApiError, key, setKey } from "./api.js";
import { $ } from "./dom.js";

export function live(state, text) {
  if ($("live").dataset.state === state && $("live").textContent === text) return;
  $("live").dataset.state = state;
  $("live").textContent = text;
}

export function refusedOr(error, otherwise) {
  if (error instanceof ApiError && error.refused) askForKey(error);
  else otherwise(error instanceof ApiError ? `The server says: ${error.message}.` : "The server does not answer.");
}

let keyGiven = null;

// Waits until somebody has given a key.
export async function nextKey() {
  await new Promise((given) => { keyGiven = given; });
  keyGiven = null;
}

export function askForKey(error) {
  live("refused", "a key is needed");
  $("key-why").textContent = error.status === 403 ? "This key may not read here." : key() ? "The server does not know this key." : "This server asks for a key.";
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
    if (keyGiven) keyGiven();
    else location.reload();
  });
  $("forget-key").addEventListener("click", () => {
    setKey(null);
    location.reload();
  });
  showForget();
}

function showForget() {
  $("forget-key").hidden = !key();
}
