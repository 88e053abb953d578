/** The built package in Chromium: a page of the same origin makes calls. Skipped if there is no Chromium. */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { text } from "node:stream/consumers";
import test from "node:test";

import { Client } from "sclub-client";

import { folder, serve } from "./server.js";

const CHROMIUM = ["chromium", "chromium-browser", "google-chrome", "chrome"].find((name) => {
  try {
    return execFileSync("which", [name], { stdio: "pipe" });
  } catch {
    return false;
  }
});

const PAGE = `<!doctype html><title>sclub</title><script type="module">
  import { Client, NoCandidatesError } from "/dist/index.js";
  const client = new Client({ url: location.origin });
  const shown = await client.recommend("anna", { k: 2 });
  const applied = await client.feedback(shown, [1, 0]);
  const error = await client.recommend("anna", { filter: { tags: ["cold"] } }).catch((error) => error);
  const said = [shown.items.length, applied, error instanceof NoCandidatesError, Boolean(error.requestId)];
  for await (const { event, data } of client.stream()) {
    said.push(event, data.rewards_per_second >= 0);
    break;
  }
  let size = 0;
  for await (const part of client.backup()) size += part.length;
  said.push(size > 1_000);
  for await (const line of client.export()) said.push(line.reward);
  // A proxy that redirects, and one that breaks off.
  const moved = await new Client({ url: location.origin + "/moved" }).state().catch((error) => error);
  said.push(moved.code, moved.mayBeDone);
  const broken = await new Client({ url: location.origin + "/broken", retries: 1 }).feedback("d", 1).catch((error) => error);
  said.push(broken.code, broken.mayBeDone);
  await fetch("/said", { method: "POST", body: JSON.stringify(said) });
</script>`;

test("a page in a browser makes calls", { skip: CHROMIUM ? false : "there is no Chromium", timeout: 60_000 }, async (t) => {
  const url = await serve(t);
  const client = new Client({ url });
  await client.putItems([{ id: "tea", features: [1, 0] }, { id: "cola", features: [0, 1] }]);
  // The page sends what it has found: a browser's own idea of when a page is done is no good with streams.
  let resolve;
  const said = new Promise((resolved) => (resolve = resolved));
  const site = http.createServer((request, response) => {
    if (request.url.startsWith("/v1/")) {
      const { method, headers } = request;
      const onward = http.request(url + request.url, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      });
      request.pipe(onward);
    } else if (/^\/dist\/\w+\.js$/.test(request.url)) {
      response.writeHead(200, { "content-type": "text/javascript" }).end(readFileSync(`node_modules/sclub-client${request.url}`));
    } else if (request.url === "/said") {
      text(request).then(resolve);
      response.end();
    } else if (request.url.startsWith("/moved/")) {
      response.writeHead(302, { location: "/elsewhere" }).end();
    } else if (request.url.startsWith("/broken/")) {
      request.socket.destroy();
    } else {
      response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
    }
  });
  site.listen(0, "127.0.0.1");
  await once(site, "listening");
  t.after(() => site.close());
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"];
  const profile = `--user-data-dir=${path.join(folder(t), "profile")}`;
  const page = `http://127.0.0.1:${site.address().port}/`;
  const browser = spawn(CHROMIUM, [...flags, profile, page], { stdio: "ignore" });
  try {
    assert.deepEqual(JSON.parse(await said), [2, true, true, true, "state", true, true, 1, 0, "redirect", false, "broken", true]);
  } finally {
    browser.kill();
    await once(browser, "exit");
    site.closeAllConnections?.();
  }
  assert.equal((await client.state()).rewards, 2);
});
