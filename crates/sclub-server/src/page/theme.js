// Light or dark: by the system's setting, the address, or the button.

import { store, stored } from "./storage.js";

const THEME = "sclub-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;
const followers = new Set();

function apply(choice) {
  if (choice) root.dataset.theme = choice;
  else delete root.dataset.theme;
}

export const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";

// Calls back at every change. Returns a function that ends this.
export function onTheme(changed) {
  followers.add(changed);
  return () => followers.delete(changed);
}

function tell() {
  for (const changed of followers) changed();
}

export function themeSwitch(button) {
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    // If the choice is the system's, the system's setting is followed again.
    const own = (next === "dark") === system.matches;
    store("localStorage", THEME, own ? null : next);
    apply(own ? null : next);
    tell();
  });
  onTheme(label);
  label();
}

const asked = new URLSearchParams(location.search).get("theme");
apply(["light", "dark"].includes(asked) ? asked : stored("localStorage", THEME));
system.addEventListener("change", tell);
