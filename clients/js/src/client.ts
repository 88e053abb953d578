/** The client of a server that runs `sclub serve`. */

import { ConnectionFailedError, errorOf, failureOf, SclubError, UnavailableError } from "./errors.js";
import { type Answer, type Outgoing, type Settings, send, sleep } from "./transport.js";
import type {
  AnswerOf,
  Arguments,
  CallOptions,
  CatalogueItem,
  ExportLine,
  FeedbackRequest,
  Id,
  Item,
  ItemPatch,
  ItemsPut,
  MethodOf,
  Path,
  Recommendation,
  RecommendOptions,
  RecommendRequest,
  Reward,
  UserCard,
} from "./types.js";

/** The maximum size of one request with items, in characters and in lines. */
const PIECE_LENGTH = 1 << 20;
const PIECE_LINES = 5_000;
/** The maximum page size of the server. */
const PAGE = 1_000;

/** The POST calls that are idempotent. A batch without rewards is not. */
const REPEATABLE_POSTS = new Set<Path>([
  "/v1/recommend",
  "/v1/recommend/batch",
  "/v1/feedback",
  "/v1/feedback/batch",
  "/v1/admin/expect",
  "/v1/admin/snapshot",
]);

/** Settings of a client. */
export interface ClientOptions {
  /** The address of the server, such as `"http://127.0.0.1:8080"`. */
  url: string;
  /** The secret of a key, if the server requires one. */
  key?: string | undefined;
  /** The space of all calls, for a server with several catalogues. */
  space?: string | undefined;
  /** The maximum number of retries of a call; 4 by default. */
  retries?: number | undefined;
  /** Milliseconds for each attempt, from the connection to the end of the answer; 30,000 by default. */
  timeout?: number | undefined;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch | undefined;
  /** Called once if the server warns that nothing can be learned from the rewards; `console.warn` by default. */
  onWarning?: ((message: string) => void) | undefined;
}

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
export class Client {
  readonly url: string;
  readonly space: string | undefined;
  readonly #headers: Record<string, string>;
  readonly #settings: Settings;
  #warn: ((message: string) => void) | undefined;

  constructor(options: ClientOptions) {
    const { protocol, username, search, hash } = new URL(options.url);
    if (!/^https?:$/.test(protocol) || username || search || hash) {
      throw new TypeError("url must begin with http:// or https://, and have no user, query or fragment");
    }
    if (options.space !== undefined && !/^[a-z0-9][a-z0-9_-]{0,62}$/.test(options.space)) {
      throw new TypeError(`space is ${JSON.stringify(options.space)}; it must have 1 to 63 characters from a-z, 0-9, - and _`);
    }
    const { retries = 4, timeout = 30_000 } = options;
    if (!Number.isSafeInteger(retries) || retries < 0) throw new TypeError(`retries is ${retries}; it must be 0 or more`);
    if (!(timeout > 0)) throw new TypeError(`timeout is ${timeout}; it must be positive`);
    this.url = options.url.replace(/\/+$/, "");
    this.space = options.space;
    this.#headers = options.key === undefined ? {} : { authorization: `Bearer ${options.key}` };
    // A browser's `fetch` must be called without an object before it.
    this.#settings = { retries, timeout, fetch: options.fetch ?? ((input, init) => fetch(input, init)) };
    this.#warn = options.onWarning ?? ((message) => console.warn(message));
  }

  /** Recommends items to a user. Users need no registration. */
  async recommend(user: Id, options: RecommendOptions & CallOptions = {}): Promise<Recommendation> {
    const { signal, timeout, retries, ...asked } = options;
    const body = { ...asked, user: idOf(user, "user") };
    return this.call("post", "/v1/recommend", { body }, { signal, timeout, retries });
  }

  /**
   * Recommends items to several users on the same history. If there is nothing to show to one of them, its `items` are empty
   * and its `error` says why.
   */
  async recommendMany(requests: RecommendRequest[], options: CallOptions = {}): Promise<Recommendation[]> {
    const asked = requests.map((one) => (typeof one === "object" ? one : { user: one }));
    const body = { requests: asked.map((one, place) => ({ ...one, user: idOf(one.user, `requests[${place}].user`) })) };
    return (await this.call("post", "/v1/recommend/batch", { body }, options)).decisions;
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
    const parts = typeof reward === "number" ? { reward } : Array.isArray(reward) ? { rewards: reward } : reward;
    const body = { ...parts, decision: decisionOf(decision) };
    const answer = await this.#send("post", "/v1/feedback", { body }, options);
    return parsed<{ applied: boolean }>(answer).applied || answer.isLost;
  }

  /**
   * Sends the rewards of several users as one round: all are learned, or none. An empty list is a round without rewards, which
   * is not sent again if its answer is lost.
   */
  async feedbackMany(feedback: FeedbackRequest[], options: CallOptions = {}): Promise<boolean[]> {
    const body = { feedback: feedback.map((one) => ({ ...one, decision: decisionOf(one.decision) })) };
    const answer = await this.#send("post", "/v1/feedback/batch", { body }, options, feedback.length > 0);
    const { applied } = parsed<{ applied: boolean[] }>(answer);
    // A batch is applied as a whole: if the attempt without an answer did so, nothing is new now.
    return answer.isLost && !applied.includes(true) ? applied.map(() => true) : applied;
  }

  /**
   * Puts items into the catalogue, in place of those with the same ids. On a server with `--features` items may have raw fields in
   * place of `features`; `unknown_fields` of the answer names those that no feature is made of.
   *
   * Many items are sent in several requests. If one of them fails, the items before it stay.
   */
  async putItems(items: Iterable<Item>, options: CallOptions = {}): Promise<ItemsPut> {
    const total: ItemsPut = { items: 0, changed: 0 };
    const unknown = new Set<string>();
    for (const lines of piecesOf(items)) {
      const headers = { "content-type": "application/x-ndjson" };
      const put = parsed<ItemsPut>(await this.#send("put", "/v1/items", { text: lines, headers }, options));
      total.items += put.items;
      total.changed += put.changed;
      for (const field of put.unknown_fields ?? []) unknown.add(field);
    }
    return unknown.size > 0 ? { ...total, unknown_fields: [...unknown] } : total;
  }

  /** An item of the catalogue. */
  async item(id: Id, options: CallOptions = {}): Promise<CatalogueItem> {
    return this.call("get", "/v1/items/{id}", { path: { id: idOf(id, "id") } }, options);
  }

  /** The items of the catalogue, in pages of 1,000. */
  async *items(options: CallOptions = {}): AsyncGenerator<CatalogueItem, void, undefined> {
    for (let after: string | null | undefined; after !== null; ) {
      const query = after === undefined ? { limit: PAGE } : { limit: PAGE, after };
      const page = await this.call("get", "/v1/items", { query }, options);
      yield* page.items;
      after = page.next ?? null;
    }
  }

  /** Changes some fields of an item. `data` is merged, and null removes one of its fields. Resolves to the whole item. */
  async patchItem(id: Id, changes: ItemPatch, options: CallOptions = {}): Promise<CatalogueItem> {
    const path = { id: idOf(id, "id") };
    return this.call("patch", "/v1/items/{id}", { path, body: changes as object }, options);
  }

  /** Removes an item from the catalogue. Resolves to true if it was there. */
  async removeItem(id: Id, options: CallOptions = {}): Promise<boolean> {
    const answer = await this.#send("delete", "/v1/items/{id}", { path: { id: idOf(id, "id") } }, options);
    return parsed<{ removed: boolean }>(answer).removed || answer.isLost;
  }

  /** What is known of a user: rewards, estimate and cluster, and in `placement` why the user is in it. */
  async user(id: Id, options: CallOptions = {}): Promise<UserCard> {
    return this.call("get", "/v1/users/{id}", { path: { id: idOf(id, "id") } }, options);
  }

  /** Forgets a user. Resolves to true if the user was known. */
  async forget(user: Id, options: CallOptions = {}): Promise<boolean> {
    const answer = await this.#send("delete", "/v1/users/{id}", { path: { id: idOf(user, "user") } }, options);
    return parsed<{ known: boolean }>(answer).known || answer.isLost;
  }

  /** The state of the server: rounds, rewards, users, clusters. */
  async state(options: CallOptions = {}): Promise<AnswerOf<"/v1/state", "get">> {
    return this.call("get", "/v1/state", {}, options);
  }

  /** Every item that was shown, with its reward, line by line. A download that breaks off rejects and is not retried. */
  async *export(options: Pick<CallOptions, "signal"> = {}): AsyncGenerator<ExportLine, void, undefined> {
    const { url, headers } = this.#request("get", "/v1/admin/export", {}, true);
    const how = options.signal === undefined ? { headers } : { headers, signal: options.signal };
    let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
    try {
      const response = await this.#settings.fetch(url, how);
      if (!response.ok || !response.body) throw errorOf(response, await response.text());
      const decoder = new TextDecoder();
      reader = response.body.getReader();
      let rest = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const lines = (rest + decoder.decode(part.value, { stream: true })).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) yield JSON.parse(line) as ExportLine;
      }
    } catch (failed) {
      options.signal?.throwIfAborted();
      throw failed instanceof SclubError ? failed : failureOf(url, failed);
    } finally {
      // A loop that was left in the middle ends the download.
      await reader?.cancel().catch(() => undefined);
    }
  }

  /** Resolves once the server answers calls, or rejects with the last error after so many milliseconds. */
  async waitUntilReady(milliseconds = 30_000, options: Pick<CallOptions, "signal"> = {}): Promise<void> {
    const end = Date.now() + milliseconds;
    for (let pause = 20; ; pause = Math.min(1_000, 1.5 * pause)) {
      try {
        const timeout = Math.max(100, end - Date.now());
        await this.call("get", "/readyz", {}, { ...options, timeout, retries: 0 });
        return;
      } catch (error) {
        const mayPass = error instanceof UnavailableError || error instanceof ConnectionFailedError;
        if (!mayPass || error.code === "tls" || Date.now() >= end) throw error;
      }
      await sleep(Math.min(pause, Math.max(0, end - Date.now())), options.signal);
    }
  }

  /**
   * Any call of the API whose answer is JSON, by method and path. Arguments and answer have the types of the API's description.
   *
   * ```js
   * const { clusters } = await client.call("get", "/v1/clusters", { query: { limit: 5 } });
   * ```
   */
  async call<P extends Path, M extends MethodOf<P>>(
    method: M,
    path: P,
    given: Arguments<P, M>,
    options: CallOptions = {},
  ): Promise<AnswerOf<P, M>> {
    return parsed(await this.#send(method, path, given, options));
  }

  async #send(
    method: string,
    path: Path,
    given: Given,
    options: CallOptions,
    isRepeatable = method !== "post" || REPEATABLE_POSTS.has(path),
  ): Promise<Answer> {
    const answer = await send(this.#settings, this.#request(method, path, given, isRepeatable), options);
    const warning = answer.response.headers.get("x-sclub-warning");
    if (warning !== null) {
      this.#warn?.(warning);
      this.#warn = undefined;
    }
    return answer;
  }

  #request(method: string, path: Path, given: Given, isRepeatable: boolean): Outgoing {
    let place = path.replace(/\{(\w+)\}/g, (_, name: string) => segmentOf(given.path?.[name], name));
    if (this.space !== undefined && !place.startsWith("/v1/spaces")) {
      place = `/v1/spaces/${this.space}${place.replace(/^\/v1/, "")}`;
    }
    const query = Object.entries(given.query ?? {}).filter(([, value]) => value !== undefined && value !== null);
    const search = new URLSearchParams(query.map(([name, value]) => [name, String(value)]));
    const body = given.text ?? (given.body === undefined ? undefined : toJson(given.body));
    const kind = body === undefined ? {} : { "content-type": "application/json" };
    return {
      method: method.toUpperCase(),
      url: `${this.url}${place}${query.length > 0 ? `?${search}` : ""}`,
      headers: { ...kind, ...given.headers, ...this.#headers },
      body,
      isRepeatable,
    };
  }
}

interface Given {
  path?: Record<string, unknown>;
  query?: Record<string, unknown>;
  body?: unknown;
  /** A body that is text already. */
  text?: string;
  headers?: Record<string, string>;
}

/** An id as text. */
function idOf(id: Id, name: string): string {
  if (typeof id === "number" && Number.isSafeInteger(id)) return String(id);
  if (typeof id !== "string" || id === "") {
    throw new TypeError(`${name} must be a text that is not empty, or a whole number: ${String(id)}`);
  }
  return id;
}

/** A part of a path. `fetch` takes the names . and .. for steps in the path, even if they are encoded. */
function segmentOf(value: unknown, name: string): string {
  if (value === "." || value === "..") throw new TypeError(`${name} is ${value}, which cannot be a part of a URL`);
  return encodeURIComponent(String(value));
}

function decisionOf(decision: string | Recommendation): string {
  return typeof decision === "string" ? decision : decision.decision;
}

/** JSON, in which NaN and infinities would be null. */
function toJson(value: unknown): string {
  return JSON.stringify(value, (name, part: unknown) => {
    if (typeof part === "number" && !Number.isFinite(part)) throw new TypeError(`${name} is ${part}; it must be a finite number`);
    return part;
  });
}

/** JSON lines in pieces of bounded size. No item is cut. */
function* piecesOf(items: Iterable<Item>): Generator<string, void, undefined> {
  let lines: string[] = [];
  let length = 0;
  for (const item of items) {
    const line = toJson({ ...item, id: idOf(item.id, "id") });
    if (lines.length === PIECE_LINES || (lines.length > 0 && length + line.length > PIECE_LENGTH)) {
      yield lines.join("\n");
      lines = [];
      length = 0;
    }
    lines.push(line);
    length += line.length + 1;
  }
  if (lines.length > 0) yield lines.join("\n");
}

function parsed<T>(answer: Answer): T {
  try {
    return JSON.parse(answer.text) as T;
  } catch (cause) {
    const requestId = answer.response.headers.get("x-request-id") ?? undefined;
    const { status } = answer.response;
    throw new SclubError("the answer is not one of an sclub server", { status, code: "bad_answer", requestId, cause });
  }
}
