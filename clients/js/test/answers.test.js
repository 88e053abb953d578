/** Answers that no sclub server gives, errors, and arguments that are refused before anything is sent. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import test from "node:test";

import * as all from "sclub-client";
import { Client, ConnectionFailedError, InternalError, RateLimitedError, SclubError, TimedOutError, UnavailableError } from "sclub-client";

import { answering, failed, folder, nowhere, serve } from "./server.js";

/** The result of a download. */
async function allOf(parts) {
  for await (const _ of parts);
}

const BAD = ["<html>", "", "null", "{}", "[]", '{"applied": 1}', '{"appl'];

test("after an answer of something else, the call may be done", async (t) => {
  for (const body of BAD) {
    const server = await answering(t, [200, body, { "x-request-id": "r1" }]);
    const client = new Client({ url: server.url });
    const calls = [
      () => client.feedback("d", 1),
      () => client.feedbackMany([{ decision: "d", reward: 1 }]),
      () => client.recommend("anna"),
      () => client.recommendMany(["anna"]),
      () => client.removeItem("tea"),
      () => client.forget("anna"),
      () => client.putItems([{ id: "tea", features: [1] }]),
    ];
    for (const [place, call] of calls.entries()) {
      if (body.startsWith('{"applied"') && place === 1) continue;
      const error = await failed(call(), SclubError);
      assert.deepEqual([error.code, error.status, error.requestId, error.mayBeDone], ["bad_answer", 200, "r1", true], body);
    }
    assert(server.requests.length <= calls.length);
  }
});

test("a page is no download, not ready, and has no field of an answer", async (t) => {
  const calls = (client) => [
    () => allOf(client.stream()),
    () => allOf(client.export()),
    () => allOf(client.backup()),
    () => client.metrics(),
    () => client.ready(),
    () => client.waitUntilReady(5_000),
    () => client.snapshot(),
    () => client.spaces(),
    () => client.recent("anna"),
    () => client.expect(3),
  ];
  for (const [body, type] of [["<html>log in</html>", "text/html"], ["[]", "application/json"], ['{"ready": false, "at": "7"}', ""]]) {
    const server = await answering(t, [200, body, type === "" ? {} : { "content-type": type }]);
    const client = new Client({ url: server.url });
    for (const call of calls(client)) {
      const error = await failed(call(), SclubError);
      assert.deepEqual([error.code, error.status], ["bad_answer", 200], `${call} ${body}`);
    }
    assert.equal(server.requests.length, calls(client).length);
  }
});

test("every error of the API's description has its class, name and parts", async (t) => {
  const { paths } = JSON.parse(readFileSync(path.join(process.env.DOCS, "openapi.json"), "utf8"));
  const statuses = new Set(Object.values(paths).flatMap((path) => Object.values(path).flatMap((call) => Object.keys(call.responses))));
  const table = {
    InvalidError: [400, 413, 415, 422],
    UnauthorizedError: [401],
    ForbiddenError: [403],
    NotFoundError: [404],
    ConflictError: [409],
    GoneError: [410],
    WrongHostError: [421],
    InternalError: [500],
    UnsupportedError: [501],
    UnavailableError: [408, 502, 503, 504],
    RateLimitedError: [429],
  };
  const known = Object.values(table).flat();
  for (const status of statuses) assert(Number(status) < 400 || known.includes(Number(status)), `${status} has no class`);
  for (const [name, several] of Object.entries(table)) {
    for (const status of several) {
      const body = { error: { code: "some_code", message: "so it is", field: "k" } };
      const server = await answering(t, [status, body, { "x-request-id": "r1", "retry-after": "7" }]);
      const error = await failed(new Client({ url: server.url, retries: 0 }).state(), all[name]);
      assert.deepEqual([error.name, error.status, error.code, error.message], [name, status, "some_code", "so it is"]);
      assert.deepEqual([error.field, error.requestId, error.retryAfter], ["k", "r1", 7]);
    }
  }
});

test("errors of proxies", async (t) => {
  const fails = async (...answer) => {
    const server = await answering(t, answer);
    return failed(new Client({ url: server.url, retries: 0 }).feedback("d", 1), answer[0] === 302 ? SclubError : UnavailableError);
  };
  assert.match((await fails(502, "<html>")).message, /HTTP status 502/);
  for (const said of ["null", "[]", '{"error": "no"}', '{"error": {"code": [], "message": {}, "field": 7}}']) {
    const error = await fails(503, said);
    assert.deepEqual([error.code, error.field, error.mayBeDone], ["", undefined, true]);
    assert.match(error.message, /HTTP status 503/);
  }
  const moved = await fails(302, "", { location: "https://sclub.example/" });
  assert.deepEqual([moved.code, moved.status, moved.mayBeDone], ["redirect", 302, false]);
  assert.match(moved.message, /redirect to https:\/\/sclub\.example\//);
});

test("what is sent again", async (t) => {
  const busy = (status, code, after) => [status, { error: { code, message: "no" } }, after === undefined ? {} : { "retry-after": after }];
  const done = [200, { applied: [] }];
  const drop = (response) => response.destroy();
  const table = [
    // The first answer, and how often a call that is idempotent and one that is not are sent.
    [busy(429, "rate_limited", "0"), 2, 2],
    [busy(429, "rate_limited", new Date(0).toUTCString()), 2, 2],
    [busy(503, "starting"), 2, 2],
    [busy(503, "overloaded"), 2, 2],
    [busy(503, "read_only"), 2, 2],
    [busy(503, "overloaded", "61"), 1, 1],
    [busy(503, "other"), 2, 1],
    [busy(504, "unknown_outcome"), 2, 1],
    [busy(408, "timeout"), 2, 1],
    [[502, ""], 2, 1],
    [drop, 2, 1],
    [[500, ""], 1, 1],
    [busy(422, "invalid"), 1, 1],
    [[200, "<html>"], 1, 1],
  ];
  for (const [first, idempotent, other] of table) {
    for (const [feedback, times] of [[[{ decision: "d", reward: 1 }], idempotent], [[], other]]) {
      const server = await answering(t, first, done);
      await new Client({ url: server.url }).feedbackMany(feedback).catch(() => undefined);
      assert.equal(server.requests.length, times, `${JSON.stringify(first)} ${feedback.length}`);
    }
  }
  const empty = (client) => client.call("post", "/v1/feedback/batch", { body: { feedback: [] } });
  const shouted = (client) => client.call("POST", "/v1/admin/compact", {});
  for (const call of [empty, shouted, (client) => client.compact(), (client) => client.startExperiment({}), (client) => client.endExperiment("e", "a")]) {
    const server = await answering(t, drop, [200, {}]);
    assert.equal((await failed(call(new Client({ url: server.url })), ConnectionFailedError)).mayBeDone, true);
    assert.equal(server.requests.length, 1);
  }
  const batch = await answering(t, drop, [200, { applied: [true] }]);
  await new Client({ url: batch.url }).call("post", "/v1/feedback/batch", { body: { feedback: [{ decision: "d", reward: 1 }] } });
  assert.equal(batch.requests.length, 2);
  const soon = await answering(t, busy(429, "rate_limited", new Date(Date.now() + 30_000).toUTCString()));
  const { retryAfter } = await failed(new Client({ url: soon.url, retries: 0 }).state(), RateLimitedError);
  assert(retryAfter > 25 && retryAfter <= 30, String(retryAfter));
  // The last attempt surely did nothing, but the one before it may have.
  const twice = await answering(t, drop, busy(410, "expired"));
  assert.equal((await failed(new Client({ url: twice.url }).feedback("d", 1), all.GoneError)).mayBeDone, true);
});

test("what is known of a failed connection", async () => {
  const connect = { code: "ETIMEDOUT", syscall: "connect" };
  const table = [
    // The cause that `fetch` gives, the code of the error, whether the call may be done, and how often it is sent.
    [{ code: "ECONNREFUSED" }, "unreachable", false, 3],
    [connect, "unreachable", false, 3],
    [{ code: "ETIMEDOUT", errors: [connect, connect] }, "unreachable", false, 3],
    [{ code: "ETIMEDOUT", errors: [connect, { code: "ECONNRESET", syscall: "read" }] }, "broken", true, 1],
    [{ message: "bad port" }, "unreachable", false, 3],
    [{ code: "ECONNRESET", syscall: "read" }, "broken", true, 1],
    [{ code: "UND_ERR_SOCKET" }, "broken", true, 1],
    [undefined, "broken", true, 1],
    [{ code: "CERT_HAS_EXPIRED" }, "tls", false, 1],
    [{ code: "ERR_TLS_CERT_ALTNAME_INVALID" }, "tls", false, 1],
    [{ code: "ERR_SSL_DECRYPTION_FAILED_OR_BAD_RECORD_MAC" }, "tls", true, 1],
    [{ code: "UND_ERR_CONNECT_TIMEOUT" }, "timeout", false, 3],
    [{ code: "UND_ERR_HEADERS_TIMEOUT" }, "timeout", true, 1],
    [{ code: "UND_ERR_BODY_TIMEOUT" }, "timeout", true, 1],
  ];
  for (const [cause, code, mayBeDone, times] of table) {
    let sent = 0;
    const fetch = async () => {
      sent += 1;
      throw new TypeError("fetch failed", { cause });
    };
    const kind = code === "timeout" ? TimedOutError : ConnectionFailedError;
    const error = await failed(new Client({ url: "http://127.0.0.1:8080", fetch, retries: 2 }).feedbackMany([]), kind);
    assert.deepEqual([error.code, error.mayBeDone, sent], [code, mayBeDone, times], JSON.stringify(cause));
  }
  const url = await nowhere();
  const { message } = await failed(new Client({ url, retries: 0 }).state(), ConnectionFailedError);
  assert.equal(message, `no answer from ${url}/v1/state: connect ECONNREFUSED ${new URL(url).host}`);
});

test("long timeouts do not end at once", async (t) => {
  const late = (response) => setTimeout(() => response.end("{}"), 50);
  const server = await answering(t, late);
  for (const timeout of [Infinity, 2 ** 31, 1e12]) {
    assert.deepEqual(await new Client({ url: server.url, timeout, retries: 0 }).experiments(), {});
  }
  await failed(new Client({ url: server.url, timeout: 10, retries: 0 }).experiments(), TimedOutError);
});

test("what cannot be sent is a TypeError, and nothing is sent", async (t) => {
  const server = await answering(t, [200, "{}"]);
  const { url } = server;
  const client = new Client({ url });
  const secret = "open sesame";
  const bad = [
    ...[1.5, NaN, "", null, undefined, true, 2 ** 53, 2n ** 64n, -(2n ** 63n) - 1n, "\ud800", new Date(), ["a"]].map((id) => () => client.recommend(id)),
    ...["1", true, null, undefined, NaN, [NaN], ["1"], {}, { reward: "1" }, { rewards: 1 }, { others: Infinity }].map((reward) => () => client.feedback("d", reward)),
    ...[undefined, null, {}, 7].map((decision) => () => client.feedback(decision, 1)),
    () => client.feedback("d", { reward: 1, item: 1.5 }),
    () => client.feedbackMany([null]),
    () => client.feedbackMany("d"),
    () => client.recommendMany("anna"),
    () => client.recommend("anna", { candidates: "tea" }),
    () => client.recommend("anna", { candidates: [2 ** 53] }),
    () => client.recommend("anna", { exclude: [null] }),
    () => client.recommend("anna", { items: [{ features: [1] }] }),
    () => client.putItems([{ features: [1] }]),
    () => client.putItems([null]),
    () => client.putItems([{ id: "tea", features: [1], data: { sizes: new Set([1]) } }]),
    () => client.putItems([{ id: "tea", features: new Float32Array([NaN]) }]),
    () => client.call("get", "/v1/items/{id}", {}),
    () => client.call("get", "/v1/items/{id}"),
    ...[NaN, -1, 0, "5"].map((timeout) => () => client.state({ timeout })),
    ...[NaN, -1, 1.5, Infinity, "2"].map((retries) => () => client.state({ retries })),
    ...[{ url: "" }, { url: "localhost:80" }, { url: `http://:${secret}@x` }, ...["/?a=b", "?", "/base/?", "#", "/#a"].map((end) => ({ url: `http://x${end}` }))].map((options) => async () => new Client(options)),
    ...["", secret, `${secret}\n`, "ключ", 7].map((key) => async () => new Client({ url, key })),
  ];
  for (const call of bad) {
    const error = await failed(call(), TypeError);
    assert(!error.message.includes(secret) && !error.message.includes("reading '"), error.message);
  }
  assert.equal(server.requests.length, 0);
});

test("a wrong item is named, and no item is sent", async (t) => {
  const server = await answering(t, [200, { items: 5_000, changed: 5_000 }]);
  const items = Array.from({ length: 5_003 }, (_, id) => ({ id, features: [1, id === 5_001 ? NaN : 0] }));
  assert.match((await failed(new Client({ url: server.url }).putItems(items), TypeError)).message, /^items\[5001\]: /);
  assert.equal(server.requests.length, 0);
});

test("whole numbers, sets and arrays of numbers are sent exactly", async (t) => {
  const server = await answering(t, [200, { decision: "d", items: [], applied: true }]);
  const client = new Client({ url: `  ${server.url}/base//  ` });
  await client.recommend(2n ** 64n - 1n, { candidates: new Set([7, "8", 9n]), exclude: [-0], items: undefined });
  await client.feedback("d", new Float32Array([0.5, 1]));
  await client.patchItem(9007199254740993n, { features: new Float64Array([0.1]), data: { at: new Date(0) } });
  const sent = server.requests.map(({ url, body }) => [url, JSON.parse(body)]);
  assert.deepEqual(sent, [
    ["/base/v1/recommend", { user: "18446744073709551615", candidates: ["7", "8", "9"], exclude: ["0"] }],
    ["/base/v1/feedback", { decision: "d", rewards: [0.5, 1] }],
    ["/base/v1/items/9007199254740993", { features: [0.1], data: { at: "1970-01-01T00:00:00.000Z" } }],
  ]);
});

test("a thousand calls at once, and a server that closes connections", async (t) => {
  let count = 0;
  const closing = (response) => {
    count += 1;
    response.writeHead(200, count % 3 === 0 ? { connection: "close" } : {}).end("{}");
    // Without a word, while the client may be about to use it again.
    if (count % 5 === 0) setTimeout(() => response.socket?.destroy(), 1);
  };
  const server = await answering(t, closing);
  const client = new Client({ url: server.url });
  const answers = await Promise.all(Array.from({ length: 1_000 }, () => client.experiments()));
  assert.equal(answers.length, 1_000);
});

test("a certificate must be trusted", async (t) => {
  const made = folder(t);
  const openssl = (name, ...more) => {
    const files = { cert: path.join(made, `${name}.pem`), key: path.join(made, `${name}.key`) };
    const args = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", `/CN=${name}`, "-keyout", files.key, "-out", files.cert];
    execFileSync("openssl", [...args, ...more], { stdio: "pipe" });
    return files;
  };
  if (spawnSync("openssl", ["version"]).status !== 0) return t.skip("there is no openssl");
  const own = openssl("authority", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign");
  const signed = ["-CA", own.cert, "-CAkey", own.key, "-addext", "basicConstraints=critical,CA:FALSE"];
  const good = openssl("good", ...signed, "-addext", "subjectAltName=IP:127.0.0.1");
  const other = openssl("other", ...signed, "-addext", "subjectAltName=DNS:other.test");
  const expired = { cert: path.join(made, "expired.pem"), key: good.key };
  const renew = ["x509", "-in", good.cert, "-signkey", good.key, "-days", "-1", "-out", expired.cert];
  execFileSync("openssl", renew, { stdio: "pipe" });
  // In a process of its own, which trusts the authority.
  const program = `
    import { Client } from "sclub-client";
    const client = new Client({ url: process.argv[1], retries: 2 });
    console.log(await client.ready().then(String), await client.state().then(() => "ok", ({ name, code, mayBeDone }) => [name, code, mayBeDone].join()));
  `;
  const said = async (files, env) => {
    const url = await serve(t, ["--tls-cert", files.cert, "--tls-key", files.key]);
    const run = spawnSync(process.execPath, ["--input-type=module", "-e", program, url], { env: { ...process.env, ...env }, encoding: "utf8" });
    return run.stdout.trim();
  };
  const trusting = { NODE_EXTRA_CA_CERTS: own.cert };
  assert.equal(await said(good, trusting), "true ok");
  assert.equal(await said(good, {}), "false ConnectionFailedError,tls,false");
  assert.equal(await said(other, trusting), "false ConnectionFailedError,tls,false");
  assert.equal(await said(expired, { NODE_EXTRA_CA_CERTS: expired.cert }), "false ConnectionFailedError,tls,false");
  const plain = (await answering(t, [200, "{}"])).url;
  const error = await failed(new Client({ url: plain.replace("http:", "https:"), retries: 0 }).state(), ConnectionFailedError);
  assert.deepEqual([error.code, error.url.startsWith("https://127.0.0.1:")], ["tls", true]);
});

test("a batch may be done in part", async (t) => {
  const refused = (status, code) => [status, { error: { code, message: "no" } }];
  const rewards = (...decisions) => (client) => client.feedbackMany(decisions.map((decision) => ({ decision, reward: 1 })));
  const items = (count) => (client) => client.putItems(Array.from({ length: count }, (_, id) => ({ id, features: [1] })));
  const put = [200, { items: 5_000, changed: 5_000 }];
  const table = [
    // The call, the answers, and whether a part of it may be done.
    [rewards("a", "b"), [refused(410, "expired")], true],
    [rewards("a", "b"), [refused(422, "invalid")], true],
    [rewards("a", "b"), [refused(503, "read_only")], true],
    [rewards("a", "b"), [refused(403, "forbidden")], false],
    [rewards("a", "b"), [refused(429, "rate_limited")], false],
    [rewards("a", "b"), [refused(404, "unknown_space")], false],
    [rewards("a"), [refused(410, "expired")], false],
    [items(2), [refused(422, "invalid")], true],
    [items(2), [refused(400, "bad_json")], true],
    [items(2), [refused(503, "overloaded")], true],
    [items(2), [refused(401, "unauthorized")], false],
    [items(1), [refused(422, "invalid")], false],
    // The items of the first request are in the catalogue.
    [items(5_001), [put, refused(422, "invalid")], true],
    [items(5_001), [put, refused(401, "unauthorized")], true],
  ];
  for (const [call, answers, mayBeDone] of table) {
    const server = await answering(t, ...answers);
    const error = await call(new Client({ url: server.url, retries: 0 })).catch((error) => error);
    assert(error instanceof SclubError, String(error));
    assert.equal(error.mayBeDone, mayBeDone, `${call} ${JSON.stringify(answers.at(-1))}`);
  }
});

test("rewards that an earlier attempt may have delivered are true", async (t) => {
  const busy = (status, code) => [status, { error: { code, message: "no" } }, { "retry-after": "0" }];
  const drop = (response) => response.destroy();
  const given = ["a", "b"].map((decision) => ({ decision, reward: 1 }));
  const node = [200, { nodes: [] }];
  const noNode = busy(404, "unknown_path");
  // A cluster learns a batch by partition: the first attempt may have succeeded in a part of them. A single server learned nothing
  // then, unless nothing is new now.
  for (const [first, applied, nodes, expected] of [
    [busy(503, "moved"), [false, true], node, [true, true]],
    [busy(503, "overloaded"), [false, true], node, [true, true]],
    [drop, [false, true], node, [true, true]],
    [drop, [false, true], busy(503, "overloaded"), [true, true]],
    [drop, [false, true], noNode, [false, true]],
    [drop, [false, false], null, [true, true]],
    [drop, [true, true], null, [true, true]],
    [busy(429, "rate_limited"), [false, true], null, [false, true]],
  ]) {
    const server = await answering(t, first, [200, { applied }], ...(nodes ? [nodes] : []));
    assert.deepEqual(await new Client({ url: server.url }).feedbackMany(given), expected, JSON.stringify([first, nodes]));
    assert.equal(server.requests.length, nodes ? 3 : 2);
  }
});

test("an internal error may be done", async (t) => {
  const server = await answering(t, [500, { error: { code: "internal", message: "no" } }]);
  assert.equal((await failed(new Client({ url: server.url }).feedback("d", 1), InternalError)).mayBeDone, true);
});

test("a backup that lacks the last decisions is a warning", async (t) => {
  const said = [];
  const headers = { "content-type": "application/octet-stream", "x-sclub-warning": "the journal cannot be written" };
  const server = await answering(t, [200, "a backup", headers]);
  await allOf(new Client({ url: server.url, onWarning: (message) => said.push(message) }).backup());
  assert.deepEqual(said, ["the journal cannot be written"]);
});
