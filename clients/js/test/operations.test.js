/** Every call of the API's description has a method; those of operators, against real servers. */

import assert from "node:assert/strict";
import { createWriteStream, readFileSync } from "node:fs";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import test from "node:test";

import { Client, ConflictError, ConnectionFailedError, NotFoundError, SclubError, TimedOutError } from "sclub-client";

import { answering, DRINKS, failed, folder, losing, sclub, shop, start } from "./server.js";

/** The call of each operation. */
const CALLS = {
  backup: (client) => client.backup().next(),
  cluster: (client) => client.cluster(1),
  clusters: (client) => client.clusters(),
  compact: (client) => client.compact(),
  delete_space: (client) => client.deleteSpace("news"),
  end_experiment: (client) => client.endExperiment("trial", "a"),
  expect: (client) => client.expect(3),
  experiments: (client) => client.experiments(),
  export: (client) => client.export().next(),
  feedback: (client) => client.feedback("d", 1),
  feedback_batch: (client) => client.feedbackMany([]),
  forget: (client) => client.forget("anna"),
  history: (client) => client.history(),
  item: (client) => client.item("tea"),
  items: (client) => client.items().next(),
  make_space: (client) => client.makeSpace("news"),
  metrics: (client) => client.metrics(),
  nodes: (client) => client.nodes(),
  patch_item: (client) => client.patchItem("tea", {}),
  preview: (client) => client.preview("anna"),
  put_items: (client) => client.putItems(DRINKS),
  readyz: (client) => client.ready(),
  recent: (client) => client.recent("anna"),
  recommend: (client) => client.recommend("anna"),
  recommend_batch: (client) => client.recommendMany(["anna"]),
  remove_item: (client) => client.removeItem("tea"),
  snapshot: (client) => client.snapshot(),
  space: (client) => client.describeSpace("news"),
  spaces: (client) => client.spaces(),
  start_experiment: (client) => client.startExperiment({ name: "trial", arms: [] }),
  state: (client) => client.state(),
  stream: (client) => client.stream().next(),
  timeline: (client) => client.timeline(),
  user: (client) => client.user("anna"),
};

/** The operations without a method, and why. */
const LEFT_OUT = { healthz: "says only that the process runs; `ready` says whether it answers calls" };

test("every call of the API's description has a method", async () => {
  const { paths } = JSON.parse(readFileSync(path.join(process.env.DOCS, "openapi.json"), "utf8"));
  const operations = Object.entries(paths).flatMap(([path, calls]) =>
    Object.entries(calls).map(([method, { operationId }]) => ({ method: method.toUpperCase(), path, operationId })),
  );
  assert.deepEqual(operations.map((one) => one.operationId).sort(), [...Object.keys(CALLS), ...Object.keys(LEFT_OUT)].sort());
  for (const { method, path, operationId } of operations.filter((one) => !(one.operationId in LEFT_OUT))) {
    const sent = [];
    const fetch = async (url, how) => {
      sent.push(`${how.method} ${new URL(url).pathname}`);
      return new Response("{}", { status: 418 });
    };
    await failed(CALLS[operationId](new Client({ url: "http://127.0.0.1:8080", fetch })), SclubError);
    assert.equal(sent.length, 1, operationId);
    assert.match(sent[0], new RegExp(`^${method} ${path.replace(/\{\w+\}/g, "[a-z0-9]+")}$`));
  }
});

test("what the server knows can be looked at", { timeout: 60_000 }, async (t) => {
  const { client } = await shop(t, ["--policy", "sclub"]);
  const shown = await client.recommend("anna", { k: 2 });
  await client.feedback(shown, [1, 0]);
  const { items } = await client.preview("anna", { k: 2 });
  assert.equal(items.length, 2);
  const past = async () => (await client.recent("anna"))[0].items.map(({ id, reward }) => [id, reward]);
  // Rewards come there a moment later.
  while ((await past())[0][1] === null) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(await past(), shown.items.map(({ id }, place) => [id, 1 - place]));
  const best = async (ascending) => {
    const ids = [];
    for await (const { id } of client.items({ sort: "reward_rate", ascending })) ids.push(id);
    return ids.slice(0, 2);
  };
  const ids = shown.items.map(({ id }) => id);
  // They are counted a moment later too. Until then both orders are that of the catalogue.
  const isSorted = async () => `${await best(false)}` === `${ids}` && `${await best(true)}` === `${[...ids].reverse()}`;
  while (!(await isSorted())) await new Promise((resolve) => setTimeout(resolve, 20));
  const found = [];
  for await (const item of client.items({ search: "green", counts: true })) found.push(item);
  assert.deepEqual(found.map((item) => [item.id, typeof item.counts.shown]), [["tea", "number"]]);
  assert.match((await client.state({ hash: true })).hash, /^[0-9a-f]+$/);
  const [cluster] = await client.clusters({ limit: 5 });
  assert.equal((await client.cluster(cluster.cluster, { items: 1, members: 1 })).users, cluster.users);
  assert.deepEqual(await client.history({ limit: Infinity }), []);
  assert.equal((await client.timeline("24h")).step_seconds, 60);
  assert.match(await client.metrics(), /^# HELP /);
  await failed(client.nodes(), NotFoundError);
  assert.equal(await client.ready(), true);
  assert.equal(typeof (await client.snapshot()), "number");
  await failed(client.expect(5), ConflictError);
  await client.forget("anna");
  assert((await client.compact()).dropped > 0);
});

test("pages follow one another, up to the limit", async (t) => {
  const page = (from, next) => [200, { clusters: Array.from({ length: 1_000 }, (_, place) => from + place), next }];
  const server = await answering(t, page(0, 7), [200, { clusters: [1_000], next: null }]);
  assert.equal((await new Client({ url: server.url }).clusters({ limit: 1_500 })).length, 1_001);
  assert.deepEqual(server.requests.map((request) => request.url), ["/v1/clusters?limit=1000", "/v1/clusters?after=7&limit=500"]);
  for (const limit of [NaN, -1, 1.5, "5", -Infinity]) {
    const client = new Client({ url: server.url });
    for (const call of [client.clusters({ limit }), client.history({ limit })]) assert.match((await failed(call, TypeError)).message, /^limit is /);
  }
  assert.equal(server.requests.length, 2);
});

test("a snapshot of a cluster has a number for each partition", async (t) => {
  const server = await answering(t, [200, { p0: { at: 5 }, p1: { at: 7 } }]);
  assert.deepEqual(await new Client({ url: server.url }).snapshot(), { p0: 5, p1: 7 });
});

test("experiments are started and ended", async (t) => {
  const { client } = await shop(t);
  const arms = [{ name: "a", policy: "sclub-soft", share: 50 }, { name: "b", policy: "linucb-one", share: 50 }];
  assert.equal((await client.startExperiment({ name: "trial", arms })).name, "trial");
  assert.equal((await client.experiments()).running.name, "trial");
  assert.equal((await client.endExperiment("trial", "a")).winner, "a");
  assert.deepEqual((await client.experiments()).past.map((one) => one.name), ["trial"]);
});

test("spaces are made and deleted, once even if the answer is lost", async (t) => {
  const { url, client } = await shop(t);
  assert.equal((await client.makeSpace("news", { dim: 2 })).name, "news");
  assert.equal((await client.describeSpace("news")).settings.dim, 2);
  const proxy = await losing(t, url);
  proxy.lose = 1;
  await new Client({ url: proxy.url, space: "news" }).deleteSpace("news");
  assert.equal(proxy.lose, 0);
  assert.deepEqual((await client.spaces()).map((space) => space.name), ["default"]);
  await failed(client.deleteSpace("news"), NotFoundError);
});

test("a backup can be restored", async (t) => {
  const { client } = await shop(t);
  await client.feedback(await client.recommend("anna"), 1);
  const file = path.join(folder(t), "sclub.backup");
  await pipeline(client.backup(), createWriteStream(file));
  const data = path.join(folder(t), "restored");
  sclub("restore", "--from", file, "--data", data);
  const copy = new Client({ url: (await start(t, [], {}, data)).url });
  assert.equal((await copy.user("anna")).count, 1);
});

test("a download is begun again, and one that breaks off is an error", async (t) => {
  const lined = { "content-type": "application/x-ndjson" };
  const begun = (response) => {
    response.writeHead(200, lined).write('{"user": "anna"}\n{"user"');
    setTimeout(() => response.destroy(), 50);
  };
  const cut = [200, '{"user": "anna"}\n{"user"', lined];
  const busy = [503, { error: { code: "overloaded", message: "busy" } }, { "retry-after": "0" }];
  for (const [answers, requests, code] of [[[busy, begun], 2, "broken"], [[cut], 1, "broken"], [[[200, "{}\n<html>\n", lined]], 1, "bad_answer"]]) {
    const server = await answering(t, ...answers);
    const lines = new Client({ url: server.url }).export();
    await lines.next();
    const error = await failed(lines.next(), code === "broken" ? ConnectionFailedError : SclubError);
    assert.deepEqual([error.code, server.requests.length], [code, requests]);
  }
  // The timeout is that of each part.
  const slow = await answering(t, (response) => {
    response.writeHead(200, { "content-type": "application/octet-stream" }).write("some");
    setTimeout(() => response.write("more"), 100);
  });
  const parts = new Client({ url: slow.url }).backup({ timeout: 1_000 });
  assert.equal(new TextDecoder().decode((await parts.next()).value), "some");
  await new Promise((resolve) => setTimeout(resolve, 1_300));
  assert.equal(new TextDecoder().decode((await parts.next()).value), "more");
  await failed(parts.next(), TimedOutError);
});

test("the stream has events until it is left, cancelled or the server stops", { timeout: 60_000 }, async (t) => {
  const { url, stop } = await start(t);
  const client = new Client({ url });
  await client.putItems(DRINKS);
  for await (const { event, data } of client.stream()) {
    assert.equal(event, "state");
    if (data.items === 3) break;
  }
  const canceller = new AbortController();
  const events = client.stream({ signal: canceller.signal });
  await events.next();
  canceller.abort();
  await failed(events.next(), DOMException);
  const last = client.stream();
  await last.next();
  const ended = stop();
  while (!(await last.next()).done);
  await ended;
});

test("events are read whatever parts they come in", async (t) => {
  const text = ': hello\r\nevent: change\r\ndata: {"to":\r\ndata: "é"}\r\n\r\nretry: 5\n\nevent: missed\ndata: 3\n\nevent: state\ndata: {';
  const bytes = [...new TextEncoder().encode(text)];
  const server = await answering(t, (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const next = () => (bytes.length > 0 ? response.write(Uint8Array.of(bytes.shift()), next) : response.end());
    next();
  });
  const events = [];
  for await (const event of new Client({ url: server.url }).stream()) events.push(event);
  assert.deepEqual(events, [{ event: "change", data: { to: "é" } }, { event: "missed", data: 3 }]);
});
