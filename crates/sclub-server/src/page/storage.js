// Storage can be disabled in the browser: then nothing is stored.
export function stored(storage, name) {
  try { return window[storage].getItem(name); } catch { return null; }
}

export function store(storage, name, value) {
  try {
    if (value === null) window[storage].removeItem(name);
    else window[storage].setItem(name, value);
  } catch { /* kept for this page only */ }
}
