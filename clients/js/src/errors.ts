/** Errors of the client, by what to do about them. */

/** The parts of an error that are known besides its message. */
export interface ErrorParts {
  status?: number | undefined;
  code?: string | undefined;
  field?: string | undefined;
  requestId?: string | undefined;
  retryAfter?: number | undefined;
  mayBeDone?: boolean | undefined;
  cause?: unknown;
}

/** A call failed. The subclasses say what to do about it. */
export class SclubError extends Error {
  /** The HTTP status; undefined if there was no answer. */
  readonly status: number | undefined;
  /** A stable code, such as `"unknown_item"`. */
  readonly code: string;
  /** The wrong field of the request, if the error is about one; in a batch with its position: `"feedback[3].reward"`. */
  readonly field: string | undefined;
  /** The id of the request, by which the operator finds it in the server's log. */
  readonly requestId: string | undefined;
  /** The number of seconds to wait before another attempt, if the server gave one. */
  readonly retryAfter: number | undefined;
  /** True if the request may have taken effect all the same, because an answer was lost. False is certain. */
  mayBeDone: boolean;

  constructor(message: string, parts: ErrorParts = {}) {
    super(message, parts.cause === undefined ? undefined : { cause: parts.cause });
    this.name = new.target.name;
    this.status = parts.status;
    this.code = parts.code ?? "";
    this.field = parts.field;
    this.requestId = parts.requestId;
    this.retryAfter = parts.retryAfter;
    this.mayBeDone = parts.mayBeDone ?? false;
  }
}

/** The server refuses the request as invalid (400, 413, 415, 422); `field` names what is wrong. */
export class InvalidError extends SclubError {}

/** The key is missing or unknown (401). */
export class UnauthorizedError extends SclubError {}

/** The key may not do this, or the page is one of another web site (403). */
export class ForbiddenError extends SclubError {}

/** There is no such decision, item, user, cluster or space (404); `code` says which. */
export class NotFoundError extends SclubError {}

/** The request leaves no item to choose from (404); the message says why, and `field` is the most frequent reason. */
export class NoCandidatesError extends NotFoundError {}

/** The request conflicts with the state of the server (409). */
export class ConflictError extends SclubError {}

/** The decision can no longer be answered (410): `code` is `"expired"`, or `"forgotten"` for a user who was forgotten. */
export class GoneError extends SclubError {}

/** The server does not answer to the host name of the address (421). */
export class WrongHostError extends SclubError {}

/** The server failed (500). Its log has the details. */
export class InternalError extends SclubError {}

/** The server cannot do this (501), for example because it is a node of a cluster. */
export class UnsupportedError extends SclubError {}

/** The server cannot serve the request now (408, 502, 503, 504): try again later. */
export class UnavailableError extends SclubError {}

/** Too many requests (429); `retryAfter` says when to try again. */
export class RateLimitedError extends UnavailableError {}

/** No connection, or no complete answer; `code` is `"unreachable"`, `"tls"`, `"broken"` or `"timeout"`. */
export class ConnectionFailedError extends SclubError {}

/** No answer within the timeout. */
export class TimedOutError extends ConnectionFailedError {}

const BY_STATUS: Record<number, typeof SclubError> = {
  400: InvalidError,
  401: UnauthorizedError,
  403: ForbiddenError,
  404: NotFoundError,
  408: UnavailableError,
  409: ConflictError,
  410: GoneError,
  413: InvalidError,
  415: InvalidError,
  421: WrongHostError,
  422: InvalidError,
  429: RateLimitedError,
  500: InternalError,
  501: UnsupportedError,
  502: UnavailableError,
  503: UnavailableError,
  504: UnavailableError,
};

/** The error for an answer that is not a success. */
export function errorOf(response: Response, body: string): SclubError {
  const { status, headers } = response;
  const detail = detailOf(body);
  const kind = detail.code === "no_candidates" ? NoCandidatesError : (BY_STATUS[status] ?? SclubError);
  return new kind(detail.message ?? `the server answered with HTTP status ${status} and no reason`, {
    status,
    code: detail.code,
    field: detail.field ?? undefined,
    requestId: headers.get("x-request-id") ?? undefined,
    retryAfter: secondsOf(headers.get("retry-after")),
  });
}

interface Detail {
  message?: string;
  code?: string;
  field?: string | null;
}

/** The error in the body of an answer; empty if a proxy wrote it. */
function detailOf(body: string): Detail {
  try {
    const said = JSON.parse(body) as { error?: Detail; ready?: boolean; reason?: string };
    // `/readyz` has a reason instead.
    if (said.ready === false) return { message: said.reason ?? "the server is not ready", code: "starting" };
    return said.error ?? {};
  } catch {
    return {};
  }
}

/** The seconds of the header Retry-After, which is a number or a date. */
function secondsOf(header: string | null): number | undefined {
  if (header === null) return undefined;
  if (/^\d+$/.test(header.trim())) return Number(header);
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, (at - Date.now()) / 1000);
}

/** Codes of errors of Node.js at which nothing was sent. */
const NOT_SENT = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/** Codes of OpenSSL for certificates that are not trusted. */
const TLS = /^ERR_(TLS|SSL)_|CERT|UNABLE_TO_|INVALID_CA|HOSTNAME_MISMATCH/;

/** The error for a `fetch` that failed. A browser does not say why: the request may have been sent. */
export function failureOf(url: string, failed: unknown): ConnectionFailedError {
  const cause = (failed as { cause?: { code?: unknown; message?: unknown } } | undefined)?.cause;
  const code = typeof cause?.code === "string" ? cause.code : "";
  const isTls = TLS.test(code);
  const isSent = !isTls && !NOT_SENT.has(code);
  const reason = [String(failed), cause?.message, code].filter(Boolean).join(": ");
  return new ConnectionFailedError(`no answer from ${url}: ${reason}`, {
    code: isTls ? "tls" : isSent ? "broken" : "unreachable",
    mayBeDone: isSent,
    cause: failed,
  });
}
