// The choice of a space, if the key opens several.

import { get, space } from "./api.js";
import { $ } from "./dom.js";

const DEFAULT = "default";

function show(name) {
  location.search = name === DEFAULT ? "" : `?space=${encodeURIComponent(name)}`;
}

// Offers the spaces that the key opens.
export async function offerSpaces() {
  let names = [];
  try { names = (await get("/v1/spaces")).spaces.map((one) => one.name); } catch { return; }
  const current = space ?? DEFAULT;
  // Without one in the address, a key of another space goes to that one.
  if (names.length && !names.includes(current) && space === null) return show(names[0]);
  const select = $("space");
  const isUnknown = !names.includes(current);
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === current)));
  if (isUnknown) select.prepend(new Option(`${current}: no such space`, current, false, true));
  select.onchange = () => show(select.value);
  select.hidden = names.length < 2 && !isUnknown;
}
