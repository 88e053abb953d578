// Requests to the server, with the API key.

import { store, stored } from "./storage.js";

const KEY = "sclub-key";

let currentKey = stored("sessionStorage", KEY);

export const key = () => currentKey;

export function setKey(value) {
  currentKey = value || null;
  store("sessionStorage", KEY, currentKey);
}

export function headers(more = {}) {
  return currentKey ? { ...more, Authorization: `Bearer ${currentKey}` } : more;
}

// The space in the address of the page; null for the default one.
export const space = new URLSearchParams(location.search).get("space");

// The path of a call in the space.
export function placed(path) {
  if (!space || path.startsWith("/v1/spaces")) return path;
  return `/v1/spaces/${encodeURIComponent(space)}${path.slice("/v1".length)}`;
}

export const DEFAULT_SPACE = "default";
// The address of the dashboard for a space.
export const addressOf = (name) => `/${name === DEFAULT_SPACE ? "" : `?space=${encodeURIComponent(name)}`}`;
const query = space ? `?space=${encodeURIComponent(space)}` : "";
// The addresses of the API browser and of the dashboard, for the same space.
export const docs = (hash = "") => `/docs${query}${hash}`;
export const dashboard = `/${query}`;

export class ApiError extends Error {
  constructor(status, code, message, sentKey) {
    super(message);
    this.status = status;
    this.code = code;
    this.key = sentKey;
  }

  get refused() { return this.status === 401 || this.status === 403; }
}

export async function failure(response, sentKey) {
  const body = await response.json().catch(() => null);
  const error = body?.error;
  return new ApiError(response.status, error?.code ?? "", error?.message ?? `the server answered ${response.status}`, sentKey);
}

export async function get(path) {
  const sentKey = key();
  const response = await fetch(placed(path), { headers: headers({ Accept: "application/json" }), signal: AbortSignal.timeout(15000) });
  if (!response.ok) throw await failure(response, sentKey);
  return response.json();
}
