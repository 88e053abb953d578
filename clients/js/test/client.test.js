/** The built package against real servers: `clients/js/run-tests`. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import test from "node:test";

import {
  Client,
  ConnectionFailedError,
  ForbiddenError,
  GoneError,
  InvalidError,
  NoCandidatesError,
  NotFoundError,
  RateLimitedError,
  SclubError,
  TimedOutError,
  UnauthorizedError,
} from "sclub-client";

import { DRINKS, failed, folder, losing, noting, nowhere, rewards, sclub, serve, shop } from "./server.js";

const KEY = "admin-admin-admin-admin";

/** The lines that the examples of a page print, with the address of another server. */
function example(page, url) {
  const block = [...readFileSync(page, "utf8").matchAll(/```js\n(.*?)```/gs)].map((found) => found[1]).join("\n");
  // Here, so that the name of the package is found.
  writeFileSync("example.js", block.replace("http://127.0.0.1:8080", url).replace('key: "…"', `key: "${KEY}"`));
  return execFileSync(process.execPath, ["example.js"], { encoding: "utf8" }).trim().split("\n");
}

test("the example of the README runs", async (t) => {
  const url = await serve(t);
  const said = example("README.md", url);
  assert.equal(said.length, 3);
  assert.deepEqual(said.slice(1), ["tea", "no_candidates filter"]);
  assert.deepEqual((await rewards(url)).sort(), [0, 1]);
});

test("the example of docs/js-client.md runs", async (t) => {
  const url = await serve(t, [], { SCLUB_API_KEYS: `admin:a:${KEY}` });
  const client = new Client({ url, key: KEY });
  await client.makeSpace("news", { dim: 3 });
  const news = new Client({ url, key: KEY, space: "news" });
  await news.waitUntilReady();
  await news.putItems([...DRINKS, { id: "mint", features: [1, 0, 0], tags: ["tea"], data: { price: 3 } }]);
  const said = example(path.join(process.env.DOCS, "js-client.md"), url);
  assert.match(said[0], /^\d+ \d/);
  assert(statSync("sclub.backup").size > 1_000);
  assert.deepEqual([(await news.state()).rewards, (await client.state()).rewards], [1, 0]);
});

test("recommendations and rewards", async (t) => {
  const { client } = await shop(t);
  const shown = await client.recommend("anna", { k: 3 });
  assert.deepEqual(shown.items.map((item) => item.id).sort(), ["coffee", "cola", "tea"]);
  assert.equal(await client.feedback(shown, 1), true);
  assert.equal(await client.feedback(shown, 1), false);
  assert.equal(await client.feedback(shown.decision, { reward: 0, item: shown.items[1].id }), true);
  assert.equal((await client.user("anna")).count, 2);
  assert.equal(await client.feedback(await client.recommend(7, { k: 2 }), [0, 1]), true);
  assert.equal((await client.user("7")).count, 2);
  assert.equal(await client.feedback(await client.recommend("ben", { k: 3 }), { others: 0 }), true);
  assert.equal((await client.user("ben")).count, 3);
  const given = await client.recommend("ben", { items: [{ id: "milk", features: [0.3, 0.4, 0] }] });
  assert.equal(given.items[0].id, "milk");
  assert.deepEqual((await client.recommend("ben", { candidates: ["tea", "gone"] })).missing, ["gone"]);
  assert.equal(await client.forget("ben"), true);
  assert.equal(await client.forget("ben"), false);
  await failed(client.user("ben"), NotFoundError);
  const gone = await failed(client.feedback(given, 1), GoneError);
  assert.deepEqual([gone.status, gone.code], [410, "forgotten"]);
});

test("batches are one round", async (t) => {
  const { client } = await shop(t);
  const shown = await client.recommendMany(["anna", { user: 8, k: 2, exclude: ["tea"] }, { user: "carl", filter: { tags: "none" } }]);
  assert.deepEqual(shown.map((one) => one.items.length), [1, 2, 0]);
  assert.equal(shown[2].error.code, "no_candidates");
  const feedback = [{ decision: shown[0], reward: 1 }, { decision: shown[1].decision, rewards: [0, 1] }];
  assert.deepEqual(await client.feedbackMany(feedback), [true, true]);
  assert.deepEqual(await client.feedbackMany(feedback), [false, false]);
  assert.deepEqual(await client.feedbackMany([]), []);
  const state = await client.state();
  assert.deepEqual([state.rounds, state.rewards], [2, 3]);
});

test("filters narrow the candidates", async (t) => {
  const { client } = await shop(t);
  const found = async (filter) => (await client.recommend("anna", { k: 3, filter })).items.map((item) => item.id).sort();
  assert.deepEqual(await found({ tags: ["hot"] }), ["coffee", "tea"]);
  assert.deepEqual(await found({ tags: { none: ["hot"] } }), ["cola"]);
  assert.deepEqual(await found({ price: { min: 3, max: 3.6 } }), ["tea"]);
  assert.deepEqual(await found({ id: ["tea", "cola"] }), ["cola", "tea"]);
  const none = await failed(found({ pricee: 3 }), NoCandidatesError);
  assert(none instanceof NotFoundError);
  assert.deepEqual([none.status, none.code, none.field], [404, "no_candidates", "filter"]);
  assert.match(none.message, /no item has a field 'pricee'/);
});

test("items are put, changed, listed and removed", async (t) => {
  const { client } = await shop(t);
  assert.deepEqual(await client.item("tea"), DRINKS[0]);
  const changed = await client.patchItem("tea", { available: false, data: { price: null, size: 2 } });
  assert.deepEqual([changed.available, changed.data], [false, { size: 2 }]);
  assert.deepEqual(await client.removeItem("tea"), true);
  assert.deepEqual(await client.removeItem("tea"), false);
  await failed(client.item("tea"), NotFoundError);
  const many = Array.from({ length: 6_500 }, (_, number) => ({ id: number, features: [number, 0.5, 0.25] }));
  assert.deepEqual(await client.putItems(many), { items: 6_500, changed: 6_500 });
  const ids = new Set();
  for await (const item of client.items()) ids.add(item.id);
  assert.deepEqual(ids, new Set([...many.map((item) => String(item.id)), "coffee", "cola"]));
  const wrong = await failed(client.putItems([{ id: "x", features: [1, 2] }]), InvalidError);
  assert.deepEqual([wrong.field, wrong.mayBeDone], ["features", false]);
  const some = await failed(client.putItems([{ id: "mint", features: [1, 2, 3] }, { id: "x", features: [1, 2] }]), InvalidError);
  assert.deepEqual([(await client.item("mint")).id, some.mayBeDone], ["mint", true]);
});

test("any text is an id, except . and ..", async (t) => {
  const { client } = await shop(t);
  for (const id of ["a/b", "a b+c", "ä€😀", "%2F", "?x=1#y", "a%", "&", "..."]) {
    await client.putItems([{ id, features: [1, 2, 3] }]);
    assert.equal((await client.item(id)).id, id);
    assert.equal(await client.removeItem(id), true);
  }
  await failed(client.item(".."), TypeError);
  for (const id of [1.5, NaN, "", null]) await failed(client.recommend(id), TypeError);
});

test("raw fields: the server makes the features", async (t) => {
  const made = folder(t);
  const films = Array.from({ length: 24 }, (_, number) => {
    const [word, tags, price] = [["toy", ["fun", "kids"], 3], ["love", ["love"], 5], ["ghost", ["horror", "love"], 9]][number % 3];
    return { id: `f${number}`, title: `${word} story ${number}`, tags, price: price + number / 10 };
  });
  const catalogue = path.join(made, "films.jsonl");
  writeFileSync(catalogue, films.map((film) => JSON.stringify(film)).join("\n"));
  sclub("features", "--items", catalogue, "--dim", "5", "--out", path.join(made, "features"));
  // What the command made of the same fields.
  const rows = readFileSync(path.join(made, "features", "items.csv"), "utf8").trim().split("\n").slice(1);
  const expected = new Map(rows.map((row) => row.split(",")).map(([id, ...values]) => [id, values.map(Number)]));
  const client = new Client({ url: await serve(t, ["--features", path.join(made, "features", "transform.json")]) });
  assert.deepEqual(await client.putItems(films), { items: 24, changed: 24 });
  const found = new Map();
  for await (const item of client.items()) found.set(item.id, item.features);
  assert.deepEqual(found, expected);
  const more = await client.putItems([{ id: "new", title: "toy ghost", tags: ["fun"], price: 4, colour: "red" }]);
  assert.deepEqual(more, { items: 1, changed: 1, unknown_fields: ["colour"] });
  const { title, tags, data } = await client.item("new");
  assert.deepEqual([title, tags, data], ["toy ghost", ["fun"], { price: 4, colour: "red" }]);
  const before = (await client.item("new")).features;
  assert.notDeepEqual((await client.patchItem("new", { price: 9 })).features, before);
});

test("a space has its own items and users", async (t) => {
  const { url, client } = await shop(t);
  await client.makeSpace("news", { dim: 2 });
  const news = new Client({ url, space: "news" });
  await news.waitUntilReady();
  await news.putItems([{ id: "story", features: [1, 0.5] }]);
  const shown = await news.recommend("anna");
  assert.equal(shown.items[0].id, "story");
  assert.equal(await news.feedback(shown, 1), true);
  assert.deepEqual([(await news.state()).rewards, (await client.state()).rewards], [1, 0]);
  await failed(client.item("story"), NotFoundError);
  await failed(client.feedback(shown, 1), NotFoundError);
  const spaces = await news.spaces();
  assert.deepEqual(spaces.map((space) => space.name).sort(), ["default", "news"]);
  assert.throws(() => new Client({ url, space: "No!" }), TypeError);
});

test("errors have code, field and request id", async (t) => {
  const { fetch, requests } = noting();
  const { client } = await shop(t, [], { fetch });
  const shown = await client.recommend("anna");
  const wrong = await failed(client.feedback(shown, 1.5), InvalidError);
  assert(wrong instanceof SclubError && wrong instanceof Error);
  assert.equal(wrong.name, "InvalidError");
  assert.deepEqual([wrong.status, wrong.code, wrong.field, wrong.mayBeDone], [422, "invalid", "reward", false]);
  assert(wrong.requestId);
  assert.equal(wrong.requestId, requests.at(-1).id);
  const many = await failed(client.feedbackMany([{ decision: shown, reward: 1 }, { decision: shown, reward: 7 }]), InvalidError);
  assert.equal(many.field, "feedback[1].reward");
  const unknown = await failed(client.recommend("anna", { candidates: ["no"], strict: true }), NotFoundError);
  assert.deepEqual([unknown.code, unknown.field], ["unknown_item", "candidates"]);
  const before = requests.length;
  await failed(client.feedback(shown, NaN), TypeError);
  await failed(client.feedback(shown, 1, { item: shown.items[0].id }), TypeError);
  assert.equal(requests.length, before);
});

test("keys", async (t) => {
  const keys = "read:r:reader-reader-reader,write:w:writer-writer-writer";
  const url = await serve(t, [], { SCLUB_API_KEYS: keys });
  await failed(new Client({ url }).recommend("anna"), UnauthorizedError);
  await new Client({ url, key: "writer-writer-writer" }).putItems(DRINKS);
  const reader = new Client({ url, key: "reader-reader-reader" });
  await failed(reader.recommend("anna"), ForbiddenError);
  assert.equal((await reader.state()).items, 3);
  assert(!JSON.stringify(reader).includes("reader-reader"));
});

test("a busy server is asked again after as long as it says", { timeout: 120_000 }, async (t) => {
  const { url } = await shop(t, ["--rate", "5"]);
  const hasty = new Client({ url, retries: 0 });
  const { fetch, requests } = noting();
  const patient = new Client({ url, fetch });
  // On a machine that stalls, it may be no longer busy when it is asked.
  let refused = -1;
  while (refused < 0) {
    const all = async () => { for (;;) await Promise.all(Array.from({ length: 10 }, () => hasty.state())); };
    const busy = await failed(all(), RateLimitedError);
    assert.deepEqual([busy.status, busy.code, busy.retryAfter, busy.mayBeDone], [429, "rate_limited", 1, false]);
    const shown = await patient.recommend("anna");
    assert.equal(await patient.feedback(shown, 1), true);
    refused = requests.findIndex((request) => request.status === 429);
  }
  const [first, second] = requests.slice(refused);
  assert.deepEqual([second.path, second.body], [first.path, first.body]);
  assert(second.at - first.at >= 990, `it waited ${second.at - first.at} ms`);
});

test("a server that is not there is asked again, and then given up", async () => {
  const { fetch, requests } = noting();
  const client = new Client({ url: await nowhere(), retries: 2, fetch });
  const error = await failed(client.feedbackMany([]), ConnectionFailedError);
  assert.deepEqual([error.code, error.status, error.mayBeDone], ["unreachable", undefined, false]);
  assert.equal(requests.length, 3);
  await failed(client.waitUntilReady(100), ConnectionFailedError);
});

test("a reward whose answer is lost is learned once", async (t) => {
  const { url, client } = await shop(t);
  const proxy = await losing(t, url);
  const shown = await client.recommendMany(["anna", "ben", "carl"]);
  const through = new Client({ url: proxy.url });
  proxy.lose = 2;
  assert.equal(await through.feedback(shown[0], 1), true);
  proxy.lose = 1;
  assert.deepEqual(await through.feedbackMany([{ decision: shown[1], reward: 0 }, { decision: shown[2], reward: 1 }]), [true, true]);
  proxy.lose = 1;
  assert.equal(await through.removeItem("tea"), true);
  assert.equal(proxy.lose, 0);
  assert.deepEqual((await rewards(url)).sort(), [0, 1, 1]);
  // A batch without rewards is a round each time, so it is not sent again.
  const { rounds } = await client.state();
  proxy.lose = 1;
  const error = await failed(through.feedbackMany([]), ConnectionFailedError);
  assert.deepEqual([error.code, error.mayBeDone], ["broken", true]);
  assert.equal((await client.state()).rounds, rounds + 1);
});

test("timeouts and cancelled calls", { timeout: 60_000 }, async (t) => {
  const { url, client } = await shop(t);
  const proxy = Object.assign(await losing(t, url), { holds: true });
  const shown = await client.recommend("anna");
  const through = new Client({ url: proxy.url, timeout: 1_000 });
  proxy.lose = 1;
  const late = await failed(through.feedback(shown, 1, { retries: 0 }), TimedOutError);
  assert.deepEqual([late.code, late.mayBeDone, late instanceof ConnectionFailedError], ["timeout", true, true]);
  proxy.lose = 1;
  assert.equal(await through.feedback(shown, 1), true);
  assert.deepEqual(await rewards(url), [1]);
  proxy.lose = 1;
  const canceller = new AbortController();
  const waiting = failed(through.state({ signal: canceller.signal, timeout: 2_000_000_000 }), DOMException);
  setTimeout(() => canceller.abort(), 100);
  const begun = Date.now();
  assert.equal((await waiting).name, "AbortError");
  assert(Date.now() - begun < 30_000, "it went on after it was cancelled");
  assert.equal((await failed(through.state({ signal: canceller.signal }), DOMException)).name, "AbortError");
  // While it waits for the next attempt.
  const reason = new RangeError("enough");
  const other = new AbortController();
  const retrying = new Client({ url: await nowhere(), retries: 1e9 }).state({ signal: other.signal });
  setTimeout(() => other.abort(reason), 200);
  assert.equal(await failed(retrying, RangeError), reason);
});

test("many calls have one signal", async (t) => {
  const { url, client } = await shop(t);
  const warnings = [];
  const note = (warning) => warnings.push(warning.name);
  process.on("warning", note);
  t.after(() => process.off("warning", note));
  const canceller = new AbortController();
  const { signal } = canceller;
  await Promise.all(Array.from({ length: 30 }, (_, user) => client.recommend(user, { signal })));
  const proxy = Object.assign(await losing(t, url), { holds: true, lose: 30 });
  const through = new Client({ url: proxy.url });
  const calls = Array.from({ length: 30 }, (_, user) => failed(through.recommend(user, { signal }), DOMException));
  setTimeout(() => canceller.abort(), 100);
  const begun = Date.now();
  await Promise.all(calls);
  assert(Date.now() - begun < 10_000, "they went on after they were cancelled");
  assert.deepEqual(warnings, []);
});

test("an export has every line, and can be left in the middle", async (t) => {
  const { url, client } = await shop(t);
  const shown = await client.recommendMany(Array.from({ length: 1_000 }, (_, user) => ({ user: `${user}é`, k: 2 })));
  await client.feedbackMany(shown.map((decision, user) => ({ decision, reward: user % 2, others: 0 })));
  assert.equal((await rewards(url)).length, 2_000);
  for await (const line of client.export()) {
    assert.match(line.user, /^\d+é$/);
    break;
  }
  const canceller = new AbortController();
  canceller.abort();
  await failed(client.export({ signal: canceller.signal }).next(), DOMException);
});

test("equal rewards are a warning, once", async (t) => {
  const said = [];
  const { client } = await shop(t, [], { onWarning: (message) => said.push(message) });
  const shown = await client.recommendMany(Array.from({ length: 120 }, (_, user) => user));
  await client.feedbackMany(shown.map((decision) => ({ decision, reward: 1 })));
  for (let more = 0; more < 3; more++) await client.feedback(await client.recommend("more"), 1);
  assert.equal(said.length, 1);
  assert.match(said[0], /nothing to learn/);
});
