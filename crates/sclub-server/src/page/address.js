// Which cards are open is in the address, so that they can be linked and gone back to.

let quietly = false;

// Goes there without scrolling: who pressed something sees what it does.
export function go(hash) {
  quietly = true;
  if (hash !== "#" && location.hash !== hash) {
    location.hash = hash;
    return;
  }
  if (hash === "#" && location.hash) history.pushState(null, "", location.pathname + location.search);
  dispatchEvent(new Event("hashchange"));
}

// What the address names, and whether it is to be brought into view.
export function named() {
  const scroll = !quietly;
  quietly = false;
  const [, kind, rest] = /^#(user|cluster)\/(.+)$/.exec(location.hash) ?? [];
  let id = rest ?? "";
  try { id = decodeURIComponent(id); } catch { /* as it stands */ }
  return { kind, id, scroll };
}
