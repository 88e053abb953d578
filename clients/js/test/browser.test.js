/** The built package in Chromium: a page of the same origin makes two calls. Skipped if there is no Chromium. */

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import test from "node:test";
import { promisify } from "node:util";

import { Client } from "sclub-client";

import { folder, serve } from "./server.js";

const CHROMIUM = ["chromium", "chromium-browser", "google-chrome", "chrome"].find((name) => {
  try {
    return execFileSync("which", [name], { stdio: "pipe" });
  } catch {
    return false;
  }
});

const PAGE = `<!doctype html><title>sclub</title><p id="said"></p><script type="module">
  import { Client, NoCandidatesError } from "/dist/index.js";
  const client = new Client({ url: location.origin });
  const shown = await client.recommend("anna", { k: 2 });
  const applied = await client.feedback(shown, [1, 0]);
  const error = await client.recommend("anna", { filter: { tags: ["cold"] } }).catch((error) => error);
  const said = [shown.items.length, applied, error instanceof NoCandidatesError, Boolean(error.requestId)];
  document.getElementById("said").textContent = JSON.stringify(said);
</script>`;

test("a page in a browser makes calls", { skip: CHROMIUM ? false : "there is no Chromium" }, async (t) => {
  const url = await serve(t);
  const client = new Client({ url });
  await client.putItems([{ id: "tea", features: [1, 0] }, { id: "cola", features: [0, 1] }]);
  const site = http.createServer((request, response) => {
    if (request.url.startsWith("/v1/")) {
      const { method, headers } = request;
      const onward = http.request(url + request.url, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      });
      request.pipe(onward);
    } else if (/^\/dist\/\w+\.js$/.test(request.url)) {
      response.writeHead(200, { "content-type": "text/javascript" }).end(readFileSync(`.${request.url}`));
    } else {
      response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
    }
  });
  site.listen(0, "127.0.0.1");
  await once(site, "listening");
  t.after(() => site.close());
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom"];
  const profile = `--user-data-dir=${path.join(folder(t), "profile")}`;
  const page = `http://127.0.0.1:${site.address().port}/`;
  const { stdout } = await promisify(execFile)(CHROMIUM, [...flags, profile, page]);
  assert.match(stdout, /<p id="said">\[2,true,true,true\]<\/p>/);
  assert.equal((await client.state()).rewards, 2);
});
