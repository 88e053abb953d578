/** A catalogue that changes while it is listed. */

import assert from "node:assert/strict";
import test from "node:test";

import { Client, NotFoundError, SclubError } from "sclub-client";

import { answering, failed, serve } from "./server.js";

/** A server with so many items, and its client. */
async function stocked(t, count) {
  const client = new Client({ url: await serve(t) });
  await client.putItems(Array.from({ length: count }, (_, place) => ({ id: `i${place}`, features: [1, 0, 0.5] })));
  return client;
}

/** The ids of a listing, with something done after each. */
async function idsOf(items, act = () => undefined) {
  const ids = [];
  for await (const { id } of items) {
    ids.push(id);
    await act(id, ids.length);
  }
  assert.equal(new Set(ids).size, ids.length, "an item came twice");
  return ids;
}

const numberOf = (id) => Number(id.slice(1));

test("a loop can remove every item that it is given", { timeout: 600_000 }, async (t) => {
  const client = await stocked(t, 2_500);
  const ids = await idsOf(client.items(), async (id) => assert.equal(await client.removeItem(id), true));
  assert.deepEqual([ids.length, (await client.state()).items], [2_500, 0]);
});

test("items that stay are listed once though others are removed", { timeout: 600_000 }, async (t) => {
  const client = await stocked(t, 2_500);
  const ids = await idsOf(client.items(), async (id) => {
    if (numberOf(id) % 5 === 0) await client.removeItem(id);
  });
  assert.equal(ids.length, 2_500);
  assert.equal((await client.state()).items, 2_000);
  // By someone else: the last item of the first page, and some before it.
  const left = await idsOf(client.items(), async (id, place) => {
    if (place === 1_000) await Promise.all([id, "i1", "i2", "i3"].map((one) => client.removeItem(one)));
  });
  const expected = ids.filter((id) => numberOf(id) % 5 !== 0);
  assert.deepEqual(left.sort(), expected.sort());
});

test("items that are shown meanwhile come once in an order by counts", { timeout: 120_000 }, async (t) => {
  const client = await stocked(t, 1_500);
  const shownOften = async (id) => {
    const counted = async () => {
      for await (const item of client.items({ search: id, counts: true })) if (item.id === id) return item.counts.shown;
    };
    for (let times = 0; times < 5; times++) await client.recommend("anna", { candidates: [id] });
    while ((await counted()) < 5) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  // The item that the next page begins after moves to the front, and one of the next page to the first.
  const ids = await idsOf(client.items({ sort: "shown" }), async (id, place) => {
    if (place === 1_000) for (const one of [id, "i1499"]) await shownOften(one);
  });
  assert.equal(ids.length, 1_500);
  const [most] = await idsOf(client.items({ sort: "shown" }));
  assert.equal(most, "i999");
});

const gone = [404, { error: { code: "unknown_item", message: "gone" } }];

/** A page of items as a server gives it. */
function page(from, count, next, order_revision, total = 3_000) {
  const items = Array.from({ length: count }, (_, place) => ({ id: `i${from + place}`, features: [] }));
  return [200, { items, next, total, order_revision }];
}

test("a listing begins again until no item is removed meanwhile", async (t) => {
  // i2999 has moved to the place of i5.
  const moved = page(0, 1_000, "i999", 2);
  moved[1].items[5] = { id: "i2999", features: [] };
  const server = await answering(t, page(0, 1_000, "i999", 1), page(1_000, 1_000, "i1999", 2), gone, moved, page(1_000, 1_000, "i1999", 2), page(2_000, 999, null, 2));
  const ids = await idsOf(new Client({ url: server.url }).items());
  assert.equal(ids.length, 3_000);
  assert.deepEqual(server.requests.map(({ url }) => new URL(url, server.url).searchParams.get("after")), [null, "i999", "i1999", null, "i999", "i1999"]);
});

test("removals without end are an error", async (t) => {
  let revision = 0;
  const busy = (response) => {
    revision += 1;
    const [, body] = page(revision % 2 === 1 ? 0 : 1_000, 1_000, revision % 2 === 1 ? "i999" : null, revision, 2_000);
    response.end(JSON.stringify(body));
  };
  const server = await answering(t, busy);
  const error = await failed(idsOf(new Client({ url: server.url }).items()), SclubError);
  assert.equal(error.code, "changing");
  assert.match(error.message, /20 times/);
  assert(server.requests.length <= 50);
  // An unknown item is an error of the listing only after the first page.
  await failed(idsOf(new Client({ url: (await answering(t, gone)).url }).items()), NotFoundError);
});

test("the nodes of a cluster may number their revisions differently", async (t) => {
  const [first, second] = [page(0, 1_000, "i999", 5, 1_500), page(1_000, 500, null, 9, 1_500)];
  const server = await answering(t, first, second, first, second);
  assert.equal((await idsOf(new Client({ url: server.url }).items())).length, 1_500);
  assert.equal(server.requests.length, 4);
});

test("a listing ends though the last item of each page moves to the front", async (t) => {
  const again = page(0, 1_000, "i999", 1, 1_500);
  const server = await answering(t, again, again, page(0, 1_000, "i999", 1, 1_500), page(1_000, 500, null, 1, 1_500));
  assert.equal((await idsOf(new Client({ url: server.url }).items({ sort: "shown", ascending: true }))).length, 1_500);
  assert.deepEqual(server.requests.map(({ url }) => url.includes("sort=shown")), [true, true, false, false]);
});
