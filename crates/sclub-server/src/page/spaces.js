// The choice of a space, if the key opens several.

import { get, space } from "./api.js";
import { $ } from "./dom.js";

const DEFAULT = "default";

function show(name) {
  location.search = name === DEFAULT ? "" : `?space=${encodeURIComponent(name)}`;
}

// Offers the spaces that the key opens. A key of another space goes to that one.
export async function offerSpaces() {
  let names = [];
  try { names = (await get("/v1/spaces")).spaces.map((one) => one.name); } catch { return; }
  const current = space ?? DEFAULT;
  if (names.length && !names.includes(current)) return show(names[0]);
  const select = $("space");
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === current)));
  select.onchange = () => show(select.value);
  select.hidden = names.length < 2;
}
