// The API browser: Swagger UI in light or dark, with the dashboard's API key.

import { key, setKey } from "./api.js";
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

onTheme(dress);
dress();
themeSwitch(document.getElementById("theme"));
const browser = globalThis.SwaggerUIBundle({
  url: "/v1/openapi.json", dom_id: "#operations", deepLinking: true, validatorUrl: null, displayRequestDuration: true,
  defaultModelsExpandDepth: 0, plugins: [keptKey],
  onComplete() {
    if (key()) browser.preauthorizeApiKey("key", key());
    root.dataset.ready = "1";
  },
});
