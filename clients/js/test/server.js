/** Real servers for tests, one that answers what it is told, and a proxy that loses answers. */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";

import { Client } from "sclub-client";

const SCLUB = process.env.SCLUB_BIN;

export const DRINKS = [
  { id: "tea", features: [1, 0, 0.5], title: "Green tea", tags: ["hot"], data: { price: 3.5 } },
  { id: "coffee", features: [0, 1, 0.5], tags: ["hot"], data: { price: 4 } },
  { id: "cola", features: [0.6, 0.8, 0], tags: ["cold"], data: { price: 2 } },
];

/** A server with drinks, and its client. */
export async function shop(test, flags = [], options = {}) {
  const url = await serve(test, flags);
  const client = new Client({ url, ...options });
  await client.putItems(DRINKS);
  return { url, client };
}

/** All rewards that a server has learned, from its export. */
export async function rewards(url) {
  const found = [];
  for await (const line of new Client({ url }).export()) if (line.reward !== null) found.push(line.reward);
  return found;
}

/** The error that a promise is rejected with. */
export async function failed(promise, kind) {
  try {
    await promise;
  } catch (error) {
    assert.equal(error.constructor, kind, error.stack);
    return error;
  }
  assert.fail("it was not rejected");
}

/** The output of `sclub` with some arguments. */
export function sclub(...args) {
  return execFileSync(SCLUB, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
}

/** A folder until the end of the test. */
export function folder(test) {
  const made = mkdtempSync(path.join(tmpdir(), "sclub-js-"));
  test.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** The address of a server with its own data folder, until the end of the test. */
export async function serve(test, flags = [], env = {}) {
  return (await start(test, flags, env)).url;
}

/** The same, with a function that stops the server. */
export async function start(test, flags = [], env = {}, data = path.join(folder(test), "data")) {
  const server = spawn(SCLUB, ["serve", "--data", data, "--addr", "127.0.0.1:0", ...flags], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const ended = once(server, "exit");
  const stop = async () => {
    server.kill("SIGTERM");
    await ended;
  };
  test.after(stop);
  const lines = createInterface({ input: server.stdout });
  const first = await Promise.race([once(lines, "line"), ended.then(() => ["it ended"])]);
  const url = /^sclub listens on (\S+)/.exec(first[0])?.[1];
  if (url === undefined) throw new Error(`the server did not start: ${first[0]}`);
  return { url, stop };
}

/** A server that gives the answers of a list, one after the other, and keeps the requests. An answer is `[status, body, headers]`, or a function. */
export async function answering(test, ...answers) {
  const requests = [];
  const server = http.createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      const answer = answers[Math.min(requests.push({ method: request.method, url: request.url, body }), answers.length) - 1];
      if (typeof answer === "function") return answer(response);
      const [status, said, headers = {}] = answer;
      response.writeHead(status, headers).end(typeof said === "string" ? said : JSON.stringify(said));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  test.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, requests };
}

/** An address at which nobody listens. */
export async function nowhere() {
  const listener = net.createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  await once(listener, "close");
  return `http://127.0.0.1:${port}`;
}

/** A proxy before a server. It loses as many of the next answers as `lose` says: the request goes through, and the caller hears nothing. */
export async function losing(test, url) {
  const proxy = { url: "", lose: 0, holds: false };
  const open = new Set();
  const listener = net.createServer((caller) => {
    const server = net.connect(Number(new URL(url).port), "127.0.0.1");
    for (const one of [caller, server]) {
      open.add(one);
      one.on("error", () => {});
      one.on("close", () => [caller, server].forEach((other) => other.destroy()));
    }
    caller.pipe(server);
    server.on("data", (part) => {
      if (proxy.lose === 0) return caller.write(part);
      proxy.lose -= 1;
      if (!proxy.holds) caller.destroy();
    });
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  proxy.url = `http://127.0.0.1:${listener.address().port}`;
  test.after(() => {
    open.forEach((one) => one.destroy());
    listener.close();
  });
  return proxy;
}

/** A `fetch` that notes each request: method, path, status, request id and time. */
export function noting() {
  const requests = [];
  const noted = async (url, init) => {
    const request = { method: init.method, path: new URL(url).pathname, body: init.body, at: Date.now() };
    requests.push(request);
    const response = await fetch(url, init);
    Object.assign(request, { status: response.status, id: response.headers.get("x-request-id") });
    return response;
  };
  return { requests, fetch: noted };
}
