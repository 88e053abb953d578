/** Sends requests over `fetch`, with timeouts and retries. */

import { ConnectionFailedError, errorOf, failureOf, SclubError, TimedOutError, UnavailableError } from "./errors.js";
import type { CallOptions } from "./types.js";

/** The maximum of milliseconds before the second attempt; doubled before each further one. */
const FIRST_WAIT = 100;
/** The maximum of milliseconds before any attempt, unless the server gives a time. */
const MAX_WAIT = 5_000;
/** The maximum of Retry-After seconds that are waited for. */
const MAX_RETRY_AFTER = 60;
/** The maximum of milliseconds of a timer. A longer one would end at once. */
const MAX_TIMER = 2 ** 31 - 1;
/** Codes of 503 that mean the request had no effect. A server that is not sure answers 504. */
const UNDONE = new Set(["starting", "overloaded", "read_only"]);
/** Refusals of which the server is sure before it looks at the body. */
const UNREAD = new Set([401, 403, 405, 415, 421, 429]);
const UNREAD_CODES = new Set(["unknown_path", "unknown_space"]);

/** A request to be sent. */
export interface Outgoing {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string | undefined;
  /** True if the request is idempotent. */
  isRepeatable: boolean;
  /** True if a part of it may take effect though the answer is a refusal. */
  isDivisible: boolean;
}

/** An answer that is a success. */
export interface Answer {
  response: Response;
  text: string;
  /** True if an earlier attempt may have taken effect without an answer. */
  isLost: boolean;
}

/** Settings of all requests. */
export interface Settings {
  fetch: typeof fetch;
  retries: number;
  /** Milliseconds. */
  timeout: number;
}

/** Settings of one call. */
interface Limits extends Settings {
  signal: AbortSignal | undefined;
}

/** Sends a request, again where that is safe and can help. Throws the error of the last attempt. */
export async function send(settings: Settings, request: Outgoing, options: CallOptions): Promise<Answer> {
  const limits = limitsOf(settings, options);
  const [{ response, text }, isLost] = await retrying(request, limits, async () => {
    const watch = new Watch(limits);
    try {
      const response = await open(request, limits, watch);
      const text = await response.text();
      return response.ok ? { response, text } : errorOf(response, text);
    } catch (failed) {
      return watch.failure(request.url, failed);
    } finally {
      watch.end();
    }
  });
  return { response, text, isLost };
}

/**
 * Yields the body of an answer in parts. The timeout applies to the beginning of the answer and to each part. Only the beginning is
 * tried again. `begin` is called before the first part.
 */
export async function* download(
  settings: Settings,
  request: Outgoing,
  options: CallOptions,
  begin: (response: Response) => void = () => undefined,
): AsyncGenerator<Uint8Array, void, undefined> {
  const limits = limitsOf(settings, options);
  const [{ response, watch }] = await retrying(request, limits, async () => {
    const watch = new Watch(limits);
    try {
      const response = await open(request, limits, watch);
      if (response.ok) return { response, watch };
      const error = errorOf(response, await response.text());
      watch.end();
      return error;
    } catch (failed) {
      watch.end();
      return watch.failure(request.url, failed);
    }
  });
  const reader = response.body?.getReader();
  try {
    begin(response);
    for (;;) {
      watch.start();
      const part = await reader?.read();
      // The time that the caller takes does not count.
      watch.stop();
      if (part === undefined || part.done) return;
      yield part.value;
    }
  } catch (failed) {
    throw failed instanceof SclubError ? failed : watch.failure(request.url, failed);
  } finally {
    watch.end();
    // A loop that was left in the middle ends the download.
    await reader?.cancel().catch(() => undefined);
  }
}

/** The result of an attempt, and whether an earlier one may have taken effect. Throws the error of the last attempt. */
async function retrying<T extends object>(
  request: Outgoing,
  limits: Limits,
  attemptOnce: () => Promise<T | SclubError>,
): Promise<[T, boolean]> {
  let lost: SclubError | undefined;
  for (let attempt = 0; ; attempt++) {
    const outcome = await attemptOnce();
    if (!(outcome instanceof SclubError)) return [outcome, lost !== undefined];
    const isUndone = hadNoEffect(outcome, request);
    const pause = (outcome.retryAfter ?? 0) * 1000 + Math.random() * Math.min(MAX_WAIT, FIRST_WAIT * 2 ** attempt);
    const isOver =
      attempt >= limits.retries ||
      !mayPass(outcome) ||
      !(request.isRepeatable || isUndone) ||
      (outcome.retryAfter ?? 0) > MAX_RETRY_AFTER;
    if (isOver) {
      outcome.mayBeDone = !isUndone || lost !== undefined;
      throw outcome;
    }
    if (!isUndone) lost = outcome;
    await sleep(pause, limits.signal);
  }
}

function open(request: Outgoing, limits: Limits, watch: Watch): Promise<Response> {
  const { method, url, headers, body } = request;
  const how = { method, headers, signal: watch.signal, redirect: "manual" as const };
  watch.start();
  return limits.fetch(url, body === undefined ? how : { ...how, body });
}

function limitsOf(settings: Settings, options: CallOptions): Limits {
  const { retries = settings.retries, timeout = settings.timeout, signal, ...others } = options;
  const [unknown] = Object.keys(others);
  // Such as `item` in the options of feedback, in place of its reward.
  if (unknown !== undefined) throw new TypeError(`${unknown} is not an option of a call: they are signal, timeout and retries`);
  return { fetch: settings.fetch, ...checkedLimits(retries, timeout), signal };
}

/** The retries and the timeout of a client or of a call. */
export function checkedLimits(retries: number, timeout: number): { retries: number; timeout: number } {
  if (!Number.isSafeInteger(retries) || retries < 0) {
    throw new TypeError(`retries is ${String(retries)}; it must be a whole number from 0 on`);
  }
  if (typeof timeout !== "number" || !(timeout > 0)) {
    throw new TypeError(`timeout is ${String(timeout)}; it must be a positive number of milliseconds, or Infinity`);
  }
  return { retries, timeout };
}

/** Ends a request at its timeout, or when the caller's signal says so. */
class Watch {
  readonly #canceller = new AbortController();
  readonly #limits: Limits;
  readonly #leave: () => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isLate = false;

  constructor(limits: Limits) {
    this.#limits = limits;
    limits.signal?.throwIfAborted();
    this.#leave = onAbort(limits.signal, () => this.#canceller.abort(limits.signal?.reason));
  }

  get signal(): AbortSignal {
    return this.#canceller.signal;
  }

  start(): void {
    this.stop();
    if (this.#limits.timeout > MAX_TIMER) return;
    this.#timer = setTimeout(() => {
      this.#isLate = true;
      this.#canceller.abort();
    }, this.#limits.timeout);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    this.stop();
    this.#leave();
  }

  /** The error for a request that failed. Throws the reason of the caller's signal, if that was the reason. */
  failure(url: string, failed: unknown): SclubError {
    this.#limits.signal?.throwIfAborted();
    if (!this.#isLate) return failureOf(url, failed);
    const message = `no answer from ${url} within ${this.#limits.timeout} ms`;
    return new TimedOutError(message, { code: "timeout", mayBeDone: true, url, cause: failed });
  }
}

/** True if a retry may succeed. */
function mayPass(error: SclubError): boolean {
  // A certificate that is not trusted now will not be in a second.
  if (error instanceof ConnectionFailedError) return error.code !== "tls";
  return error instanceof UnavailableError;
}

/** True if the request surely had no effect. */
function hadNoEffect(error: SclubError, { isDivisible }: Outgoing): boolean {
  if (error instanceof ConnectionFailedError) return !error.mayBeDone;
  const status = error.status ?? 0;
  if (isDivisible) return status < 400 || UNREAD.has(status) || UNREAD_CODES.has(error.code);
  return (status < 500 && status !== 408) || (status === 503 && UNDONE.has(error.code));
}

/** Waits, unless the signal is aborted. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(() => {
      leave();
      resolve();
    }, milliseconds);
    const leave = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason);
    });
  });
}

/** What is to be done when a signal is aborted. */
const WAITING = new WeakMap<AbortSignal, Set<() => void>>();

/** Does something when a signal is aborted, until the result is called. */
function onAbort(signal: AbortSignal | undefined, act: () => void): () => void {
  if (signal === undefined) return () => undefined;
  const waiting = WAITING.get(signal) ?? new Set();
  if (!WAITING.has(signal)) {
    // One listener for all calls: Node.js takes more than ten for a leak.
    WAITING.set(signal, waiting);
    signal.addEventListener("abort", () => waiting.forEach((one) => one()), { once: true });
  }
  waiting.add(act);
  return () => waiting.delete(act);
}
