// The open cards are in the address, so that they can be linked, and the browser's back button works.

let quietly = false;

// Changes the address without scrolling, so that a pressed link stays in view.
export function go(hash) {
  quietly = true;
  if (hash !== "#" && location.hash !== hash) {
    location.hash = hash;
    return;
  }
  if (hash === "#" && location.hash) history.pushState(null, "", location.pathname + location.search);
  dispatchEvent(new Event("hashchange"));
}

// The card that the address names, and true if it is to be scrolled into view.
export function named() {
  const scroll = !quietly;
  quietly = false;
  const [, kind, rest] = /^#(user|cluster)\/(.+)$/.exec(location.hash) ?? [];
  let id = rest ?? "";
  try { id = decodeURIComponent(id); } catch { /* as it stands */ }
  return { kind, id, scroll };
}
