// The API browser: Swagger UI in light or dark, with the dashboard's API key, for the space in the address.

import { dashboard, key, placed, setKey, space } from "./api.js";
import { $, el } from "./dom.js";
import { isDark, onTheme, themeSwitch } from "./theme.js";

const root = document.documentElement;
const dress = () => root.classList.toggle("dark-mode", isDark());

// A key that is entered here is used by the dashboard too, until the tab is closed.
const keptKey = () => ({
  statePlugins: {
    auth: {
      wrapActions: {
        authorize: (authorize) => (given) => {
          setKey(given.key?.value);
          return authorize(given);
        },
        logout: (logout) => (names) => {
          setKey(null);
          return logout(names);
        },
      },
    },
  },
});

// A list of items is sent as JSON lines, so its example is shown as lines, and can be sent as it is.
const lines = () => ({
  afterLoad({ fn: { getSampleSchema } }) {
    Object.assign(this.fn, {
      getSampleSchema(schema, type, config, example) {
        const list = example?.toJS?.() ?? example;
        if (type !== "application/x-ndjson" || !Array.isArray(list)) return getSampleSchema(schema, type, config, example);
        return list.map((line) => JSON.stringify(line)).join("\n");
      },
    });
  },
});

// The groups and the calls in the order of use. Those that are not listed come last. Experiments are seen at the end of one group and
// started and ended at the beginning of the next.
const GROUPS = ["items", "recommend", "look", "admin", "spaces"];
const ORDER = [
  "put /v1/items", "get /v1/items", "get /v1/items/{id}", "patch /v1/items/{id}", "delete /v1/items/{id}",
  "post /v1/recommend", "post /v1/feedback", "post /v1/recommend/batch", "post /v1/feedback/batch",
  "get /v1/users/{id}", "get /v1/users/{id}/preview", "get /v1/users/{id}/recent",
  "get /v1/clusters", "get /v1/clusters/{id}", "get /v1/history", "get /v1/state", "get /v1/timeline", "get /v1/stream",
  "get /v1/nodes", "get /metrics", "get /healthz", "get /readyz", "get /v1/experiments",
  "post /v1/experiments", "post /v1/experiments/{name}/end", "delete /v1/users/{id}", "post /v1/admin/expect",
  "post /v1/admin/snapshot", "post /v1/admin/compact", "get /v1/admin/backup", "get /v1/admin/export",
  "get /v1/spaces", "get /v1/spaces/{space}", "put /v1/spaces/{space}", "delete /v1/spaces/{space}",
].map((call) => call.replace(" /v1/", " /"));
// The paths of a space begin with its name.
const start = placed("/v1/");
const place = (call) => {
  const path = call.get("path");
  const found = ORDER.indexOf(`${call.get("method")} ${path.startsWith(start) ? path.slice(start.length - 1) : path}`);
  return found < 0 ? ORDER.length : found;
};
const group = (tag) => (GROUPS.includes(tag) ? GROUPS.indexOf(tag) : GROUPS.length);

// No link in a button, no heading of the third level without one of the second, and everything in a landmark.
const tidy = ({ React: { createElement, Fragment } }) => ({
  wrapComponents: {
    InfoContainer: (Info) => (props) => createElement("section", { "aria-label": "About this API" }, createElement(Info, props)),
    // There is one server: the one that this page is from.
    ServersContainer: () => () => null,
    DeepLink: () => ({ text }) => createElement("span", null, text),
    operations: (Operations) => (props) => createElement(Fragment, null, createElement("h2", { className: "unseen" }, "Calls"), createElement(Operations, props)),
  },
});

// Names for fields and tables that Swagger UI leaves without one.
function name() {
  for (const table of document.querySelectorAll("#browser table[role=region]:not([aria-label])")) table.setAttribute("aria-label", `Answers: ${table.id.replaceAll("_", " ")}`);
  for (const field of document.querySelectorAll("#browser tr select:not([aria-label]), #browser tr textarea:not([aria-label])")) {
    field.setAttribute("aria-label", field.closest("tr").querySelector(".parameter__name")?.firstChild?.textContent ?? "Value");
  }
}
new MutationObserver(name).observe(document.getElementById("browser"), { childList: true, subtree: true });

onTheme(dress);
dress();
themeSwitch($("theme"));
const description = placed("/v1/openapi.json");
$("dashboard").href = dashboard;
$("description").href = description;

// The description of a space is for its keys only, and there may be no such space.
async function refused(response) {
  const error = (await Promise.resolve(response.text).then(JSON.parse).catch(() => null))?.error;
  $("banner").replaceChildren(el("strong", {}, `The calls${space ? ` of the space ‘${space}’` : ""} cannot be shown`),
    el("p", {}, `The server says: ${error?.message ?? response.status}. Choose a space or enter a key on the `, el("a", { href: dashboard }, "dashboard"), "."));
  $("banner").hidden = false;
  $("browser").hidden = true;
  root.dataset.ready = "1";
}

const browser = globalThis.SwaggerUIBundle({
  url: description, dom_id: "#browser", deepLinking: true, validatorUrl: null, displayRequestDuration: true,
  defaultModelsExpandDepth: 0, syntaxHighlight: false, plugins: [keptKey, lines, tidy], operationsSorter: (a, b) => place(a) - place(b), tagsSorter: (a, b) => group(a) - group(b),
  // With a key, the description has the features and the fields of items of this server.
  requestInterceptor(request) {
    if (request.loadSpec && key()) request.headers.Authorization = `Bearer ${key()}`;
    return request;
  },
  responseInterceptor(response) {
    if (!response.ok && new URL(response.url, location.href).pathname === description) refused(response);
    return response;
  },
  onComplete() {
    if (key()) browser.preauthorizeApiKey("key", key());
    root.dataset.ready = "1";
  },
});
