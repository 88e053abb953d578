// The first steps on a server without items or users, with commands that fit its address, keys and space.

import { docs, get, key, space } from "./api.js";
import { $, copyButton, el } from "./dom.js";
import { contextExample } from "./words.js";
import { world } from "./world.js";

// The item of the API's description: it has values that the transform knows.
let [drawn, example] = [null, null];

const command = (text) => el("div", { class: "command" }, el("code", {}, text), copyButton(text));
const step = (title, ...parts) => el("li", {}, el("strong", {}, title), parts);
const words = (...parts) => el("p", {}, parts);
const code = (text) => el("code", {}, text);
// JSON on a line, with spaces. Names and values of a context have no quotation marks.
const spaced = (value) => JSON.stringify(value, null, 1).replace(/\n\s*(\S)/g, (_, next) => (next === "}" ? next : ` ${next}`)).replaceAll("{ ", "{");

const FEW = 16;
// Features of an item: as many as the server's items have, if that is known. Many are left to the reader.
function features(dim) {
  if (!dim) return "[1, 0, 0.5]";
  if (dim > FEW) return `[… ${dim} numbers …]`;
  return `[${Array.from({ length: dim }, (_, n) => [1, 0, 0.5][n % 3]).join(", ")}]`;
}

async function findExample() {
  try {
    const { paths } = await get("/v1/openapi.json");
    const path = Object.keys(paths).find((one) => one.endsWith("/items"));
    const [item] = paths[path].put.requestBody.content["application/x-ndjson"].example;
    example = JSON.stringify({ ...item, id: "tea" }, ["id", ...Object.keys(item)]);
    draw();
  } catch {
    // The steps are shown without it.
  }
}

function draw() {
  const url = location.origin;
  const v1 = `${url}/v1${space ? `/spaces/${encodeURIComponent(space)}` : ""}`;
  // The key itself is not shown.
  const auth = key() ? ' -H "Authorization: Bearer $SCLUB_KEY"' : "";
  const isEmpty = world.state.items === 0;
  const raw = world.state.raw_fields;
  const asked = { user: "anna", k: 3, ...(world.state.context?.length ? { context: contextExample(world.state.context) } : {}) };
  const { dim } = world.state;
  const put = (item) => command(`curl -X PUT ${v1}/items${auth} --data-binary '${item}'`);
  $("start").replaceChildren(
    el("h2", { id: "start-title" }, isEmpty ? "First steps" : "Next steps"),
    key() ? words("The commands take the API key from the variable ", code("SCLUB_KEY"), ". Writing items, recommending and feedback need a key of the role write.") : "",
    el("ol", { class: "steps" },
      isEmpty ? [
        raw ? step("Put your items into the catalogue.", words("This server makes features from raw fields: ", Object.keys(raw).flatMap((name, i) => [i ? ", " : "", code(name)]), ". Send one item a line, with any of them:"),
          example ? put(example.replaceAll("'", "'\\''")) : "") :
        step("Put your items into the catalogue.", words(`If you have numbers that describe each item${dim ? `, ${dim} of them on this server` : ""}:`),
          put(`{"id": "tea", "title": "Green tea", "tags": ["drink"], "features": ${features(dim)}}`),
          words("If you have a table with titles, tags and prices instead, let the server make the numbers: make a transform, ",
            space ? "make this space again with it and with its other settings, which needs a key of the role admin," :
              ["start the server again with ", code("--features features/transform.json"), " beside its other flags,"],
            " and send the rows, one JSON object a line. A transform is taken only before the first item."),
          command(`sclub features --items catalogue.csv --out features${dim ? ` --dim ${dim}` : ""}`),
          space ? [
            command(`curl -X DELETE "${v1}?confirm=${space}"${auth}`),
            command(`curl -X PUT ${v1}${auth} -d '{"features": "/path/on/the/server/features/transform.json"}'`),
          ] : [
            words("With a log of clicks or purchases too, make a data folder that has learned from it, and start the server with ", code("--data shop"), ":"),
            command("sclub import --interactions clicks.csv --items catalogue.csv --features features/transform.json --data shop"),
          ]),
      ] : null,
      step("Recommend, from your application.", world.state.context?.length ? words("This server has context features: send the values that hold for the request, such as these.") : "",
        command(`curl ${v1}/recommend${auth} -d '${spaced(asked)}'`)),
      step("Send back what was taken, and that the rest was not.",
        words(code('"others": 0'), " sends zeros for the items of the list that were not taken. Without zeros there is nothing to learn."),
        command(`curl ${v1}/feedback${auth} -d '{"decision": "…", "reward": 1, "others": 0}'`)),
    ),
    words("Every call is described at ", el("a", { href: docs() }, "/docs"), ". To see this page at work first, start another server and send it simulated users. They stay in its data folder:"),
    command("sclub serve --data trial --addr 127.0.0.1:8090"),
    command("sclub simulate --url http://127.0.0.1:8090 --users 500 --clusters 8 --dim 5 --rounds 100000"));
}

// Shown until the first reward.
export function refresh() {
  const state = world.state;
  const isShown = state && (world.latest?.rounds ?? state.rounds) === 0 && (world.latest?.users ?? state.users) === 0;
  $("start").hidden = !isShown;
  document.body.classList.toggle("begun", !isShown);
  const now = isShown ? `${state.items === 0} ${Boolean(key())} ${state.dim}` : null;
  if (now !== drawn && isShown) {
    draw();
    if (state.raw_fields && !example) findExample();
  }
  drawn = now;
}
