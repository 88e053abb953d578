/** The client of a server that runs `sclub serve`. */

import { parsed } from "./connection.js";
import { SclubError } from "./errors.js";
import { type ItemsPage, listed } from "./listing.js";
import { Operations, PAGE } from "./operations.js";
import type {
  AnswerOf,
  CallOptions,
  CatalogueItem,
  FeedbackRequest,
  Id,
  Item,
  ItemFigures,
  ItemPatch,
  ItemsPut,
  Recommendation,
  RecommendOptions,
  RecommendRequest,
  Reward,
  UserCard,
} from "./types.js";
import { askedInBatch, askedOf, givenInBatch, givenOf, idOf, listOf, piecesOf } from "./values.js";

/**
 * A client of a server that runs `sclub serve`.
 *
 * ```js
 * const client = new Client({ url: "http://127.0.0.1:8080" });
 * const shown = await client.recommend("anna", { k: 3 });
 * await client.feedback(shown, { reward: 1, item: shown.items[1].id, others: 0 });
 * ```
 *
 * Answers have the names of the API. Every method rejects with a {@link SclubError}.
 */
export class Client extends Operations {
  /** Recommends items to a user. Users need no registration. */
  async recommend(user: Id, options: RecommendOptions & CallOptions = {}): Promise<Recommendation> {
    const { signal, timeout, retries, ...asked } = options;
    const answer = await this.sent("post", "/v1/recommend", { body: askedOf(user, asked) }, { signal, timeout, retries });
    return parsed<Recommendation>(answer, isRecommendation);
  }

  /**
   * Recommends items to several users on the same history. If there is nothing to show to one of them, its `items` are empty
   * and its `error` says why.
   */
  async recommendMany(requests: Iterable<RecommendRequest>, options: CallOptions = {}): Promise<Recommendation[]> {
    const body = { requests: listOf(requests, "requests").map(askedInBatch) };
    const answer = await this.sent("post", "/v1/recommend/batch", { body }, options);
    const isOne = (said: { decisions: Recommendation[] }) => Array.isArray(said.decisions) && said.decisions.every(isRecommendation);
    return parsed(answer, isOne).decisions;
  }

  /**
   * Sends the reward of an item that was shown. It is on the server's disk afterwards.
   *
   * A number is the reward of the first item, a list has the rewards in the order shown. `{ reward: 1, item: "tea", others: 0 }` is a
   * click on one of them, and `{ others: 0 }` none.
   *
   * Each item takes one reward, so a call can be repeated. Resolves to false if the item had its reward before. If the answer to
   * an earlier attempt was lost and the item has a reward now, it is true: the reward is most likely this one.
   */
  async feedback(decision: string | Recommendation, reward: Reward, options: CallOptions = {}): Promise<boolean> {
    const answer = await this.sent("post", "/v1/feedback", { body: givenOf(decision, reward) }, options);
    return parsed<{ applied: boolean }>(answer, (said) => typeof said.applied === "boolean").applied || answer.isLost;
  }

  /**
   * Sends the rewards of several users as one round: all are learned, or none. In a cluster they are one round in each partition, and
   * if one refuses its part, the others may have learned theirs. Each element is as the result of `feedback`. An empty list is a round
   * without rewards, which is not sent again if its answer is lost.
   */
  async feedbackMany(feedback: Iterable<FeedbackRequest>, options: CallOptions = {}): Promise<boolean[]> {
    const given = listOf(feedback, "feedback").map(givenInBatch);
    const answer = await this.sent("post", "/v1/feedback/batch", { body: { feedback: given } }, options);
    const { applied } = parsed<{ applied: boolean[] }>(answer, (said) => Array.isArray(said.applied));
    if (!answer.isLost || applied.every(Boolean)) return applied;
    // A server learns a batch as a whole: if the lost attempt did so, nothing is new now. A cluster learns it by partition.
    const mayBeEarlier = !applied.some(Boolean) || (await this.#mayBeNode(options));
    return mayBeEarlier ? applied.map(() => true) : applied;
  }

  #isNode: boolean | undefined;

  /** True unless the server is known to be a single one. It is asked once. */
  async #mayBeNode(options: CallOptions): Promise<boolean> {
    if (this.#isNode !== undefined) return this.#isNode;
    try {
      await this.nodes({ ...options, retries: 0 });
      this.#isNode = true;
    } catch (error) {
      if (!(error instanceof SclubError) || error.code !== "unknown_path") return true;
      this.#isNode = false;
    }
    return this.#isNode;
  }

  /**
   * Puts items into the catalogue, in place of those with the same ids. On a server with `--features` items may have raw fields in
   * place of `features`; `unknown_fields` of the answer names those that no feature is made of.
   *
   * All are checked before the first is sent. Many items are sent in several requests. If one of them fails, the items before it
   * stay, and the error has `mayBeDone`.
   */
  async putItems(items: Iterable<Item>, options: CallOptions = {}): Promise<ItemsPut> {
    const total: ItemsPut = { items: 0, changed: 0 };
    const unknown = new Set<string>();
    for (const text of piecesOf(items)) {
      const put = await this.#putPiece(text, total.items > 0, options);
      total.items += put.items;
      total.changed += put.changed;
      for (const field of put.unknown_fields ?? []) unknown.add(field);
    }
    return unknown.size > 0 ? { ...total, unknown_fields: [...unknown] } : total;
  }

  /** Puts the items of one request. */
  async #putPiece(text: string, areSome: boolean, options: CallOptions): Promise<ItemsPut> {
    const headers = { "content-type": "application/x-ndjson" };
    try {
      return parsed<ItemsPut>(await this.sent("put", "/v1/items", { text, headers }, options), (said) => said.items >= 0);
    } catch (error) {
      if (areSome && error instanceof SclubError) error.mayBeDone = true;
      throw error;
    }
  }

  /** An item of the catalogue. */
  async item(id: Id, options: CallOptions = {}): Promise<CatalogueItem> {
    return this.call("get", "/v1/items/{id}", { path: { id: idOf(id, "id") } }, options);
  }

  /**
   * The items of the catalogue, in pages of 1,000: all, or those whose id, title, tags or data contain all words of `search`. With `counts` each has
   * also `counts`: how often it was shown, and its rewards.
   *
   * The catalogue may change meanwhile, also in the loop: no item comes twice, and every item that is there all the time comes once. Those that
   * a removal, or with `sort` a new count, has moved to a page that was read before come last. If items are removed faster than the pages can
   * be read, it rejects with the code `changing`.
   */
  items(
    options: { search?: string; sort?: "shown" | "rewards" | "reward_rate"; ascending?: boolean; counts?: boolean } & CallOptions = {},
  ): AsyncGenerator<CatalogueItem & { counts?: ItemFigures }, void, undefined> {
    const { search, sort, ascending, counts, ...how } = options;
    return listed(async (after, isByCounts) => {
      const order = isByCounts || sort === undefined ? { sort, ascending } : {};
      const answer = await this.sent("get", "/v1/items", { query: { limit: PAGE, after, search, ...order, counts } }, how);
      return parsed<ItemsPage>(answer, (said) => Array.isArray(said.items));
    }, sort !== undefined);
  }

  /** Changes some fields of an item. `data` is merged, and null removes one of its fields. Resolves to the whole item. */
  async patchItem(id: Id, changes: ItemPatch, options: CallOptions = {}): Promise<CatalogueItem> {
    const path = { id: idOf(id, "id") };
    return parsed<CatalogueItem>(await this.sent("patch", "/v1/items/{id}", { path, body: changes }, options));
  }

  /** Removes an item from the catalogue. Resolves to true if it was there. */
  async removeItem(id: Id, options: CallOptions = {}): Promise<boolean> {
    const answer = await this.sent("delete", "/v1/items/{id}", { path: { id: idOf(id, "id") } }, options);
    return parsed<{ removed: boolean }>(answer, (said) => typeof said.removed === "boolean").removed || answer.isLost;
  }

  /** What is known of a user: rewards, estimate and cluster, and in `placement` why the user is in it. */
  async user(id: Id, options: CallOptions = {}): Promise<UserCard> {
    return this.call("get", "/v1/users/{id}", { path: { id: idOf(id, "id") } }, options);
  }

  /** What the user would be shown now, and why. It is no decision: nothing is recorded. */
  async preview(user: Id, options: { k?: number } & CallOptions = {}): Promise<AnswerOf<"/v1/users/{id}/preview", "get">> {
    const { k, ...how } = options;
    return this.call("get", "/v1/users/{id}/preview", { path: { id: idOf(user, "user") }, query: k === undefined ? {} : { k } }, how);
  }

  /** The last decisions of a user, newest first, with the rewards of their items. */
  async recent(user: Id, options: CallOptions = {}): Promise<AnswerOf<"/v1/users/{id}/recent", "get">["decisions"]> {
    type Recent = AnswerOf<"/v1/users/{id}/recent", "get">;
    const answer = await this.sent("get", "/v1/users/{id}/recent", { path: { id: idOf(user, "user") } }, options);
    return parsed<Recent>(answer, (said) => Array.isArray(said.decisions)).decisions;
  }

  /** Forgets a user. Resolves to true if the user was known. */
  async forget(user: Id, options: CallOptions = {}): Promise<boolean> {
    const answer = await this.sent("delete", "/v1/users/{id}", { path: { id: idOf(user, "user") } }, options);
    return parsed<{ known: boolean }>(answer, (said) => typeof said.known === "boolean").known || answer.isLost;
  }
}

function isRecommendation(said: Recommendation | null): boolean {
  return typeof said?.decision === "string" && Array.isArray(said.items);
}
