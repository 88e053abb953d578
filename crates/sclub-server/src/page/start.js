// The first steps on a server without items or users, with commands that fit its address, keys and space.

import { key, space } from "./api.js";
import { $, copyButton, el } from "./dom.js";
import { world } from "./world.js";

let drawn = null;

const command = (text) => el("div", { class: "command" }, el("code", {}, text), copyButton(text));
const step = (title, ...parts) => el("li", {}, el("strong", {}, title), parts);
const words = (...parts) => el("p", {}, parts);
const code = (text) => el("code", {}, text);

function draw() {
  const url = location.origin;
  const v1 = `${url}/v1${space ? `/spaces/${encodeURIComponent(space)}` : ""}`;
  // The key itself is not shown.
  const auth = key() ? ' -H "Authorization: Bearer $SCLUB_KEY"' : "";
  const isEmpty = world.state.items === 0;
  $("start").replaceChildren(
    el("h2", { id: "start-title" }, isEmpty ? "First steps" : "Next steps"),
    key() ? words("The commands take the API key from the variable ", code("SCLUB_KEY"), ". Writing items, recommending and feedback need a key of the role write.") : "",
    el("ol", { class: "steps" },
      isEmpty ? [
        step("Put your items into the catalogue.", words("If you have numbers that describe each item:"),
          command(`curl -X PUT ${v1}/items${auth} --data-binary '{"id": "tea", "title": "Green tea", "tags": ["drink"], "features": [1, 0, 0.5]}'`),
          words("If you have a table with titles, tags and prices instead, these commands make the numbers from it, and a data folder with the items. With a log of clicks or purchases, the folder has learned from them too. Start the server again with ", code("--data shop"), ":"),
          command("sclub features --items catalogue.csv --out features"),
          command("sclub import --interactions clicks.csv --items catalogue.csv --features features/transform.json --data shop")),
      ] : null,
      step("Recommend, from your application.", command(`curl ${v1}/recommend${auth} -d '{"user": "anna", "k": 3}'`)),
      step("Send back what was taken, and that the rest was not.",
        words(code('"others": 0'), " sends zeros for the items of the list that were not taken. Without zeros there is nothing to learn."),
        command(`curl ${v1}/feedback${auth} -d '{"decision": "…", "reward": 1, "others": 0}'`)),
    ),
    words("Every call is described at ", el("a", { href: "/docs" }, "/docs"), ". To see this page at work first, send simulated users to a server on another data folder, since they stay in it:"),
    command(`sclub simulate --url ${space ? v1 : url}`));
}

// Shown until the first reward.
export function refresh() {
  const state = world.state;
  const isShown = state && (world.latest?.rounds ?? state.rounds) === 0 && (world.latest?.users ?? state.users) === 0;
  $("start").hidden = !isShown;
  document.body.classList.toggle("begun", !isShown);
  const now = isShown ? `${state.items === 0} ${Boolean(key())}` : null;
  if (now !== drawn && isShown) draw();
  drawn = now;
}
