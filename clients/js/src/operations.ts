/** The calls of operators: what the server knows, experiments, spaces, exports and backups. */

import { checkType, Connection, parsed } from "./connection.js";
import { badAnswerOf, ConnectionFailedError, NotFoundError, UnavailableError } from "./errors.js";
import { eventsOf, linesOf } from "./lines.js";
import { sleep } from "./transport.js";
import type { AnswerOf, CallOptions, Experiment, ExperimentRequest, ExportLine, Space, SpaceSettings, StreamEvent } from "./types.js";

/** The maximum page size of the server. */
export const PAGE = 1_000;
/** The timeout in milliseconds of calls that take long on a large data folder. */
const LONG = 600_000;

/** A client with the calls of operators. */
export class Operations extends Connection {
  /** The state of the server: rounds, rewards, users, clusters. With `hash` also a hash of everything learned, which is slow with many users. */
  async state(options: { hash?: boolean } & CallOptions = {}): Promise<AnswerOf<"/v1/state", "get">> {
    const { hash, ...how } = options;
    return this.call("get", "/v1/state", { query: hash === undefined ? {} : { hash } }, hash ? long(how) : how);
  }

  /** The largest clusters; 100 by default, and all with `limit: Infinity`. */
  async clusters(options: { limit?: number } & CallOptions = {}): Promise<AnswerOf<"/v1/clusters", "get">["clusters"]> {
    return this.#pages("/v1/clusters", "clusters", "after", options);
  }

  /** A cluster, with some of its best items and of its members. */
  async cluster(id: number, options: { items?: number; members?: number } & CallOptions = {}): Promise<AnswerOf<"/v1/clusters/{id}", "get">> {
    const { items, members, ...how } = options;
    const query = { ...(items === undefined ? {} : { items }), ...(members === undefined ? {} : { members }) };
    return this.call("get", "/v1/clusters/{id}", { path: { id }, query }, how);
  }

  /** The latest splits and merges, newest first; 100 by default, and with `limit: Infinity` all that are kept. */
  async history(options: { limit?: number } & CallOptions = {}): Promise<AnswerOf<"/v1/history", "get">["changes"]> {
    return this.#pages("/v1/history", "changes", "before", options);
  }

  /** Requests, rewards and latencies over time: `10m` by the second, `24h` by the minute, `60d` by the hour. */
  async timeline(range: "10m" | "24h" | "60d" = "10m", options: CallOptions = {}): Promise<AnswerOf<"/v1/timeline", "get">> {
    return this.call("get", "/v1/timeline", { query: { range } }, options);
  }

  /**
   * The changes of clusters as they happen (`change`), and a summary each second (`state`). `missed` is the number of changes that came too fast.
   * Ends when the server stops. A connection that breaks rejects: begin again, and read the `history` for what was missed.
   *
   * ```js
   * for await (const { event, data } of client.stream()) if (event === "state") console.log(data.rewards_per_second);
   * ```
   */
  async *stream(options: CallOptions = {}): AsyncGenerator<StreamEvent, void, undefined> {
    try {
      yield* eventsOf(this.downloaded("/v1/stream", "text/event-stream", options));
    } catch (failed) {
      throw badAnswerOf(failed);
    }
  }

  /** Metrics in the text format of Prometheus. */
  async metrics(options: CallOptions = {}): Promise<string> {
    const { response, text } = await this.sent("get", "/metrics", {}, options);
    checkType(response, "text/plain");
    return text;
  }

  /** The nodes of a cluster, and the owner of each partition. */
  async nodes(options: { hash?: boolean } & CallOptions = {}): Promise<AnswerOf<"/v1/nodes", "get">> {
    const { hash, ...how } = options;
    return this.call("get", "/v1/nodes", { query: hash === undefined ? {} : { hash } }, hash ? long(how) : how);
  }

  /** The experiment under way and those that have ended, with their results. */
  async experiments(options: CallOptions = {}): Promise<AnswerOf<"/v1/experiments", "get">> {
    return this.call("get", "/v1/experiments", {}, options);
  }

  /** Starts an experiment. It is not sent again if the answer is lost: look at `experiments` then. */
  async startExperiment(experiment: ExperimentRequest, options: CallOptions = {}): Promise<Experiment> {
    return this.call("post", "/v1/experiments", { body: experiment }, options);
  }

  /** Ends the experiment under way. The policy of the winner is in force from now on. */
  async endExperiment(name: string, winner: string, options: CallOptions = {}): Promise<Experiment> {
    return this.call("post", "/v1/experiments/{name}/end", { path: { name }, body: { winner } }, options);
  }

  /** The spaces that the key opens. */
  async spaces(options: CallOptions = {}): Promise<Space[]> {
    const answer = await this.sent("get", "/v1/spaces", {}, options);
    return parsed<{ spaces: Space[] }>(answer, (said) => Array.isArray(said.spaces)).spaces;
  }

  /** A space. */
  async describeSpace(name: string, options: CallOptions = {}): Promise<Space> {
    return this.call("get", "/v1/spaces/{space}", { path: { space: name } }, options);
  }

  /** Makes a space, with settings by their names as flags of `sclub serve`. One that exists with the same settings is left as it is. */
  async makeSpace(name: string, settings: SpaceSettings = {}, options: CallOptions = {}): Promise<Space> {
    return this.call("put", "/v1/spaces/{space}", { path: { space: name }, body: settings }, options);
  }

  /** Deletes a space with everything that it has learned. */
  async deleteSpace(name: string, options: CallOptions = {}): Promise<void> {
    try {
      await this.call("delete", "/v1/spaces/{space}", { path: { space: name }, query: { confirm: name } }, options);
    } catch (error) {
      // The attempt whose answer was lost has deleted it.
      if (!(error instanceof NotFoundError && error.mayBeDone)) throw error;
    }
  }

  /** Sets the number of users that exist before the first round. */
  async expect(users: number, options: CallOptions = {}): Promise<number> {
    const answer = await this.sent("post", "/v1/admin/expect", { body: { users } }, options);
    return parsed<{ expected_users: number }>(answer, (said) => typeof said.expected_users === "number").expected_users;
  }

  /** Removes forgotten users from the server's data folder. It is not sent again if the answer is lost. */
  async compact(options: CallOptions = {}): Promise<AnswerOf<"/v1/admin/compact", "post">> {
    return this.call("post", "/v1/admin/compact", {}, long(options));
  }

  /** Takes a snapshot, which makes the server's next start fast. Resolves to its last event; in a cluster, to that of each partition. */
  async snapshot(options: CallOptions = {}): Promise<number | Record<string, number>> {
    type Taken = { at: number };
    const isOne = (said: unknown): said is Taken => typeof (said as Taken | null)?.at === "number";
    const areAll = (said: object) => !Array.isArray(said) && Object.values(said).every(isOne);
    const answer = await this.sent("post", "/v1/admin/snapshot", {}, long(options));
    const said = parsed<Taken | Record<string, Taken>>(answer, (said) => isOne(said) || areAll(said));
    if (isOne(said)) return said.at;
    return Object.fromEntries(Object.entries(said).map(([partition, { at }]) => [partition, at]));
  }

  /**
   * Every item that was shown, with its reward, line by line. `timeout` applies to each part. A download that breaks off rejects: start
   * it again.
   */
  async *export(options: CallOptions = {}): AsyncGenerator<ExportLine, void, undefined> {
    try {
      for await (const { text, isWhole } of linesOf(this.downloaded("/v1/admin/export", "application/x-ndjson", long(options)))) {
        if (!isWhole) throw new ConnectionFailedError("the export broke off in the middle of a line", { code: "broken", url: this.url });
        yield JSON.parse(text) as ExportLine;
      }
    } catch (failed) {
      throw badAnswerOf(failed);
    }
  }

  /**
   * A backup of the server's data folder for `sclub restore`, in parts. `timeout` applies to each part. A download that breaks off rejects, so
   * give the file its name when it is complete.
   *
   * ```js
   * await pipeline(client.backup(), createWriteStream("sclub.backup.part"));
   * await rename("sclub.backup.part", "sclub.backup");
   * ```
   */
  backup(options: CallOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return this.downloaded("/v1/admin/backup", "application/octet-stream", long(options));
  }

  /** Resolves to true if the server answers calls now. Tries once. */
  async ready(options: Omit<CallOptions, "retries"> = {}): Promise<boolean> {
    try {
      await this.#checkReady(options);
      return true;
    } catch (error) {
      if (isPassing(error)) return false;
      throw error;
    }
  }

  /** Resolves once the server answers calls, or rejects with the last error after so many milliseconds. */
  async waitUntilReady(milliseconds = 30_000, options: Pick<CallOptions, "signal"> = {}): Promise<void> {
    const end = Date.now() + milliseconds;
    for (let pause = 20; ; pause = Math.min(1_000, 1.5 * pause)) {
      try {
        return await this.#checkReady({ ...options, timeout: Math.max(100, end - Date.now()) });
      } catch (error) {
        if (!isPassing(error) || error.code === "tls" || Date.now() >= end) throw error;
      }
      await sleep(Math.min(pause, Math.max(0, end - Date.now())), options.signal);
    }
  }

  async #checkReady(options: CallOptions): Promise<void> {
    parsed<{ ready: boolean }>(await this.sent("get", "/readyz", {}, { ...options, retries: 0 }), (said) => said.ready);
  }

  /** The entries of a list, page by page, up to `limit`. */
  async #pages<P extends "/v1/clusters" | "/v1/history", K extends string, T>(
    path: P,
    key: K,
    cursor: string,
    options: { limit?: number } & CallOptions,
  ): Promise<T[]> {
    const { limit = 100, ...how } = options;
    if (limit !== Infinity && !(Number.isSafeInteger(limit) && limit >= 0)) {
      throw new TypeError(`limit is ${String(limit)}; it must be a whole number from 0 on, or Infinity`);
    }
    const found: T[] = [];
    for (let query: Record<string, unknown> = {}; found.length < limit; ) {
      const answer = await this.sent("get", path, { query: { ...query, limit: Math.min(PAGE, limit - found.length) } }, how);
      const page = parsed<{ [Key in K]: T[] } & { next?: unknown }>(answer, (said) => Array.isArray(said[key]));
      found.push(...page[key]);
      if (page.next === undefined || page.next === null) break;
      query = { [cursor]: page.next };
    }
    return found;
  }
}

/** Options of a call that takes long. */
function long(options: CallOptions): CallOptions {
  return { ...options, timeout: options.timeout ?? LONG };
}

function isPassing(error: unknown): error is UnavailableError | ConnectionFailedError {
  return error instanceof UnavailableError || error instanceof ConnectionFailedError;
}
