// The choice of a space, if the key opens several, and what is said if there is none of the name in the address.

import { addressOf, DEFAULT_SPACE, get, space } from "./api.js";
import { $ } from "./dom.js";
import { warn } from "./figures.js";
import { world } from "./world.js";

function show(name) {
  location.assign(`${addressOf(name)}${location.hash}`);
}

// The spaces that the key opens.
const names = async () => (await get("/v1/spaces")).spaces.map((one) => one.name);

// Offers the spaces that the key opens.
export async function offerSpaces() {
  let all = [];
  try { all = await names(); } catch { return; }
  const current = space ?? DEFAULT_SPACE;
  // Without one in the address, a key of another space goes to that one.
  if (all.length && !all.includes(current) && space === null) return show(all[0]);
  const select = $("space");
  const isUnknown = !all.includes(current);
  select.replaceChildren(...all.map((name) => new Option(name, name, false, name === current)));
  if (isUnknown) select.prepend(new Option(`${current}: not found`, current, false, true));
  select.onchange = () => show(select.value);
  select.hidden = all.length < 2 && !isUnknown;
}

// Says that there is no such space, and which ones there are.
export async function noSuchSpace() {
  world.others = await names().catch(() => []);
  warn();
}
