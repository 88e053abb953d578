/** Compiled, and not run: what the types must allow, and in each line after @ts-expect-error what they must refuse. */

import { Client, InvalidError, SclubError, type Recommendation } from "sclub-client";

const client = new Client({ url: "http://127.0.0.1:8080", key: "secret", space: "news", retries: 2, timeout: 1_000 });
// @ts-expect-error the url is missing
new Client({});
// @ts-expect-error a misspelt option
new Client({ url: "http://127.0.0.1:8080", retry: 2 });

const shown: Recommendation = await client.recommend("anna", { k: 2, filter: { tags: ["tea"], price: { min: 1, max: 5 } } });
const score: number = shown.items[0]!.score;
const later: number | null | undefined = shown.items[0]!.propensity;
await client.recommend(7, { items: [{ id: "a", features: [0.5, 1] }], signal: new AbortController().signal });
// @ts-expect-error an id is a text or a whole number
await client.recommend({ user: "anna" });
// @ts-expect-error a misspelt option
await client.recommend("anna", { K: 2 });
// @ts-expect-error k is a number
await client.recommend("anna", { k: "2" });
// @ts-expect-error min is a number
await client.recommend("anna", { filter: { price: { min: "cheap" } } });
// @ts-expect-error there is no such way to break ties
await client.recommend("anna", { ties: "coin" });
// @ts-expect-error candidates are named or given, not both
await client.recommend("anna", { candidates: ["a"], items: [{ id: "a", features: [1] }] });
// @ts-expect-error such a field is not in the answer
shown.item;

const applied: boolean = await client.feedback(shown, 1);
await client.feedback("decision", [0, 1]);
await client.feedback(shown, { reward: 1, item: "tea", others: 0 });
await client.feedback(shown, { others: 0 });
// @ts-expect-error the reward is missing
await client.feedback(shown);
// @ts-expect-error a reward is a number
await client.feedback(shown, "1");
// @ts-expect-error a list has no item
await client.feedback(shown, { rewards: [0, 1], item: "tea" });
// @ts-expect-error an item without a reward
await client.feedback(shown, { item: "tea" });
await client.recommendMany(["anna", { user: "ben", k: 2 }]);
// @ts-expect-error the user is missing
await client.recommendMany([{ k: 2 }]);
await client.feedbackMany([{ decision: shown, reward: 1 }]);
// @ts-expect-error the decision is missing
await client.feedbackMany([{ reward: 1 }]);

await client.putItems([
  { id: "tea", features: [1, 0], title: "Tea", tags: ["hot"], data: { price: 3 } },
  { id: "mate", title: "Mate", price: 4.5 },
]);
// @ts-expect-error the id is missing
await client.putItems([{ features: [1, 0] }]);
// @ts-expect-error features are numbers
await client.putItems([{ id: "tea", features: ["hot"] }]);
await client.patchItem("tea", { available: false, data: { price: null } });
await client.patchItem("tea", { features: new Float32Array(3) });
// @ts-expect-error features are numbers
await client.patchItem("tea", { features: ["hot"] });
// @ts-expect-error available is a boolean
await client.patchItem("tea", { available: "no" });
for await (const item of client.items()) item.features.map((value) => value + 1);
const count: number = (await client.user("anna")).count;

for await (const item of client.items({ search: "tea", counts: true })) item.counts?.shown.toFixed();
// @ts-expect-error there is no such option
client.items({ find: "tea" });
await client.recommend(7n, { candidates: new Set(["tea", 8]), exclude: [9n] });
await client.putItems([{ id: 7n, features: new Float32Array([1, 0]) }]);
await client.feedback(shown, new Float64Array([0, 1]));

// Readonly lists.
const vector = [1, 0] as const;
const tags: readonly string[] = ["hot"];
await client.feedback(shown, vector);
await client.feedbackMany([{ decision: shown, rewards: vector }] as const);
await client.putItems([{ id: "tea", features: vector, tags }, { id: "mate", tags, price: 4.5 }] as const);
await client.patchItem("tea", { features: vector, tags });
await client.recommend("anna", { items: [{ id: "a", features: vector }] as const });
await client.recommend("anna", { candidates: tags, exclude: tags, filter: { tags: { any: tags }, title: tags } });
await client.call("post", "/v1/feedback", { body: { decision: "d", rewards: vector } });
await client.startExperiment({ name: "trial", arms: [{ name: "a", policy: "sclub-soft", share: 100 }] } as const);

// What operators do.
for await (const { event, data } of client.stream()) {
  if (event === "state") data.rewards_per_second.toFixed();
  else if (event === "change") data.round.toFixed();
  else data.toFixed();
}
for await (const part of client.backup({ timeout: 1_000 })) part.byteLength.toFixed();
await client.makeSpace("news", { dim: 3, policy: "sclub-soft" });
// @ts-expect-error there is no such setting
await client.makeSpace("news", { dimension: 3 });
await client.startExperiment({ name: "trial", arms: [{ name: "a", policy: "sclub-soft", share: 100 }] });
// @ts-expect-error the winner is missing
await client.endExperiment("trial");
// @ts-expect-error there is no such range
await client.timeline("1h");
const [cluster] = await client.clusters({ limit: 1 });
cluster?.users.toFixed();
(await client.recent("anna"))[0]?.items[0]?.reward?.toFixed();

// Any call of the API.
const { clusters } = await client.call("get", "/v1/clusters", { query: { limit: 5 } });
const size: number = clusters[0]!.users;
await client.call("put", "/v1/spaces/{space}", { path: { space: "news" }, body: { dim: 3 } });
// @ts-expect-error the answer is not JSON
await client.call("get", "/metrics", {});
// @ts-expect-error there is no such path
await client.call("get", "/v1/cluster", {});
// @ts-expect-error the path has no such method
await client.call("post", "/v1/clusters", {});
// @ts-expect-error the id is missing
await client.call("get", "/v1/items/{id}", {});
// @ts-expect-error there is no such parameter
await client.call("get", "/v1/clusters", { query: { max: 5 } });
// @ts-expect-error the body is missing
await client.call("post", "/v1/admin/expect", {});
// @ts-expect-error users is a number
await client.call("post", "/v1/admin/expect", { body: { users: "many" } });

try {
  await client.state();
} catch (error) {
  // @ts-expect-error not known to be an error of this package
  error.code;
  if (error instanceof InvalidError) error.field?.toUpperCase();
  if (error instanceof SclubError) error.code satisfies string;
}

export { applied, count, later, score, size };
