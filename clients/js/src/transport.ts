/** Sends requests over `fetch`, with timeouts and retries. */

import { ConnectionFailedError, errorOf, failureOf, SclubError, TimedOutError, UnavailableError } from "./errors.js";
import type { CallOptions } from "./types.js";

/** The maximum of milliseconds before the second attempt; doubled before each further one. */
const FIRST_WAIT = 100;
/** The maximum of milliseconds before any attempt, unless the server gives a time. */
const MAX_WAIT = 5_000;
/** The maximum of Retry-After seconds that are waited for. */
const MAX_RETRY_AFTER = 60;
/** Codes of 503 that mean the request had no effect. A server that is not sure answers 504. */
const UNDONE = new Set(["starting", "overloaded", "read_only"]);

/** A request to be sent. */
export interface Outgoing {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string | undefined;
  /** True if the request is idempotent. */
  isRepeatable: boolean;
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

/** Sends a request, again where that is safe and can help. Throws the error of the last attempt. */
export async function send(settings: Settings, request: Outgoing, options: CallOptions): Promise<Answer> {
  const retries = options.retries ?? settings.retries;
  let lost: SclubError | undefined;
  for (let attempt = 0; ; attempt++) {
    const outcome = await attemptOnce(settings, request, options);
    if (!(outcome instanceof SclubError)) return { ...outcome, isLost: lost !== undefined };
    const isUndone = hadNoEffect(outcome);
    const pause = (outcome.retryAfter ?? 0) * 1000 + Math.random() * Math.min(MAX_WAIT, FIRST_WAIT * 2 ** attempt);
    const isOver =
      attempt >= retries ||
      !mayPass(outcome) ||
      !(request.isRepeatable || isUndone) ||
      (outcome.retryAfter ?? 0) > MAX_RETRY_AFTER;
    if (isOver) {
      outcome.mayBeDone = !isUndone || lost !== undefined;
      throw outcome;
    }
    if (!isUndone) lost = outcome;
    await sleep(pause, options.signal);
  }
}

async function attemptOnce(
  settings: Settings,
  request: Outgoing,
  options: CallOptions,
): Promise<{ response: Response; text: string } | SclubError> {
  const { method, url, headers, body } = request;
  const timeout = options.timeout ?? settings.timeout;
  const canceller = new AbortController();
  const cancel = () => canceller.abort(options.signal?.reason);
  options.signal?.throwIfAborted();
  options.signal?.addEventListener("abort", cancel, { once: true });
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    canceller.abort();
  }, timeout);
  try {
    const how = { method, headers, signal: canceller.signal, redirect: "manual" as const };
    const response = await settings.fetch(url, body === undefined ? how : { ...how, body });
    const text = await response.text();
    return response.ok ? { response, text } : errorOf(response, text);
  } catch (failed) {
    options.signal?.throwIfAborted();
    if (isLate) {
      const message = `no answer from ${url} within ${timeout} ms`;
      return new TimedOutError(message, { code: "timeout", mayBeDone: true, cause: failed });
    }
    return failureOf(url, failed);
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", cancel);
  }
}

/** True if a retry may succeed. */
function mayPass(error: SclubError): boolean {
  // A certificate that is not trusted now will not be in a second.
  if (error instanceof ConnectionFailedError) return error.code !== "tls";
  return error instanceof UnavailableError;
}

/** True if the request surely had no effect. */
function hadNoEffect(error: SclubError): boolean {
  if (error instanceof ConnectionFailedError) return !error.mayBeDone;
  const status = error.status ?? 0;
  return (status < 500 && status !== 408) || (status === 503 && UNDONE.has(error.code));
}

/** Waits, unless the signal is aborted. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
