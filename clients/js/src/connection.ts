/** The connection to a server: address, key, space, and calls by method and path. */

import { badAnswer } from "./errors.js";
import { type Answer, checkedLimits, download, type Outgoing, send, type Settings } from "./transport.js";
import type { AnswerOf, Arguments, CallOptions, MethodOf, Path } from "./types.js";
import { segmentOf, toJson } from "./values.js";

/** The POST calls that are idempotent, besides batches of rewards. */
const REPEATABLE_POSTS = new Set<Path>(["/v1/recommend", "/v1/recommend/batch", "/v1/feedback", "/v1/admin/expect", "/v1/admin/snapshot"]);

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
  /** Called with a warning of the server, such as that nothing can be learned from the rewards; `console.warn` by default. */
  onWarning?: ((message: string) => void) | undefined;
}

/** The parts of a request. */
export interface Given {
  path?: Record<string, unknown>;
  query?: Record<string, unknown>;
  body?: unknown;
  /** A body that is text already. */
  text?: string;
  headers?: Record<string, string>;
}

/** The connection to a server. */
export class Connection {
  readonly url: string;
  readonly space: string | undefined;
  readonly #headers: Record<string, string>;
  readonly #settings: Settings;
  readonly #onWarning: (message: string) => void;
  #hasWarned = false;

  constructor(options: ClientOptions) {
    this.url = checkedUrl(options.url);
    if (options.space !== undefined && !/^[a-z0-9][a-z0-9_-]{0,62}$/.test(options.space)) {
      throw new TypeError(`space is ${JSON.stringify(options.space)}; it must have 1 to 63 characters from a-z, 0-9, - and _`);
    }
    this.space = options.space;
    this.#headers = headersOf(options.key);
    const { retries = 4, timeout = 30_000 } = options;
    // A browser's `fetch` must be called without an object before it.
    this.#settings = { ...checkedLimits(retries, timeout), fetch: options.fetch ?? ((input, init) => fetch(input, init)) };
    this.#onWarning = options.onWarning ?? ((message) => console.warn(message));
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
    // JavaScript may leave it out.
    const asked: Given | undefined = given;
    return parsed(await this.sent(method, path, asked ?? {}, options));
  }

  /** The answer to a request. */
  protected async sent(method: string, path: Path, given: Given, options: CallOptions): Promise<Answer> {
    const answer = await send(this.#settings, this.#request(method, path, given), options);
    const warning = answer.response.headers.get("x-sclub-warning");
    if (warning !== null && !this.#hasWarned) {
      this.#hasWarned = true;
      this.#onWarning(warning);
    }
    return answer;
  }

  /** The body of an answer with a content type, in parts. */
  protected downloaded(path: Path, type: string, options: CallOptions): AsyncGenerator<Uint8Array, void, undefined> {
    return download(this.#settings, this.#request("get", path, {}), options, (response) => {
      checkType(response, type);
      const warning = response.headers.get("x-sclub-warning");
      if (warning !== null) this.#onWarning(warning);
      const nodes = response.headers.get("sclub-missing-nodes");
      if (nodes === null) return;
      this.#onWarning(
        `the export is not complete: ${nodes} did not take part, and may have decisions that no other node has; repeat it when all nodes are running`,
      );
    });
  }

  #request(method: string, path: Path, given: Given): Outgoing {
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
      isRepeatable: isRepeatable(method, path, given.body),
      isDivisible: isDivisible(path, given),
    };
  }
}

function isRepeatable(method: string, path: Path, body: unknown): boolean {
  if (method.toLowerCase() !== "post") return true;
  if (path !== "/v1/feedback/batch") return REPEATABLE_POSTS.has(path);
  // Without rewards it is a round each time.
  return feedbackIn(body) > 0;
}

/** True for rewards of several decisions, which a cluster learns by partition, and for several items: those before a wrong line stay. */
function isDivisible(path: Path, { body, text }: Given): boolean {
  return path === "/v1/items" ? text?.includes("\n") === true : path === "/v1/feedback/batch" && feedbackIn(body) > 1;
}

/** The number of decisions of a batch of rewards. */
function feedbackIn(body: unknown): number {
  const { feedback } = (body ?? {}) as { feedback?: unknown };
  return Array.isArray(feedback) ? feedback.length : 0;
}

/** The content of an answer. `check` says whether it is one of an sclub server. */
export function parsed<T>(answer: Answer, check: (said: T) => unknown = () => true): T {
  let said: T;
  try {
    said = JSON.parse(answer.text) as T;
  } catch (cause) {
    throw badAnswer(answer.response, { cause });
  }
  if (typeof said !== "object" || said === null || !check(said)) throw badAnswer(answer.response);
  return said;
}

/** Checks that an answer is what it should be, and not the page of a proxy. */
export function checkType(response: Response, type: string): void {
  const given = response.headers.get("content-type");
  if (given?.split(";")[0]?.trim().toLowerCase() === type) return;
  throw badAnswer(response, { why: `its content type is ${String(given)} and not ${type}` });
}

/** The address of the server, without a slash at the end. */
function checkedUrl(url: string): string {
  let parts: URL;
  try {
    parts = new URL(url);
  } catch {
    throw new TypeError(`url is ${JSON.stringify(url)}; it must be an address such as "http://127.0.0.1:8080"`);
  }
  const { protocol, username, password, href } = parts;
  if (username !== "" || password !== "") {
    // Not shown: it may hold a secret.
    throw new TypeError("url must not have a user or password; pass a key as key");
  }
  // Not by `search` and `hash`: these are empty after a ? or # at the end, and all paths would be in the query or the fragment.
  if (!/^https?:$/.test(protocol) || /[?#]/.test(href)) {
    throw new TypeError(`url is ${JSON.stringify(url)}; it must begin with http:// or https://, and have no query or fragment`);
  }
  return href.replace(/\/+$/, "");
}

function headersOf(key: string | undefined): Record<string, string> {
  if (key === undefined) return {};
  // Not shown: it is a secret.
  if (typeof key !== "string" || !/^[!-~]+$/.test(key)) throw new TypeError("key must be printable ASCII without spaces");
  return { authorization: `Bearer ${key}` };
}
