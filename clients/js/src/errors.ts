/** Errors of the client, by what to do about them. */

/** The parts of an error that are known besides its message. */
export interface ErrorParts {
  status?: number | undefined;
  code?: string | undefined;
  field?: string | undefined;
  requestId?: string | undefined;
  retryAfter?: number | undefined;
  mayBeDone?: boolean | undefined;
  url?: string | undefined;
  cause?: unknown;
}

/** A call failed. The subclasses say what to do about it. */
export class SclubError extends Error {
  // Written out in each class: a bundler may shorten the names of classes.
  override readonly name: string = "SclubError";
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
  /**
   * True if the request may have taken effect all the same: an answer was lost, or a batch was refused of which a part may have been done.
   * False is certain.
   */
  mayBeDone: boolean;

  constructor(message: string, parts: ErrorParts = {}) {
    super(message, parts.cause === undefined ? undefined : { cause: parts.cause });
    this.status = parts.status;
    this.code = parts.code ?? "";
    this.field = parts.field;
    this.requestId = parts.requestId;
    this.retryAfter = parts.retryAfter;
    this.mayBeDone = parts.mayBeDone ?? false;
  }
}

/** The server refuses the request as invalid (400, 413, 415, 422); `field` names what is wrong. */
export class InvalidError extends SclubError {
  override readonly name: string = "InvalidError";
}

/** The key is missing or unknown (401). */
export class UnauthorizedError extends SclubError {
  override readonly name: string = "UnauthorizedError";
}

/** The key may not do this, or the page is one of another web site (403). */
export class ForbiddenError extends SclubError {
  override readonly name: string = "ForbiddenError";
}

/** There is no such decision, item, user, cluster or space (404); `code` says which. */
export class NotFoundError extends SclubError {
  override readonly name: string = "NotFoundError";
}

/** The request leaves no item to choose from (404); the message says why, and `field` is the most frequent reason. */
export class NoCandidatesError extends NotFoundError {
  override readonly name: string = "NoCandidatesError";
}

/** The request conflicts with the state of the server (409). */
export class ConflictError extends SclubError {
  override readonly name: string = "ConflictError";
}

/** The decision can no longer be answered (410): `code` is `"expired"`, or `"forgotten"` for a user who was forgotten. */
export class GoneError extends SclubError {
  override readonly name: string = "GoneError";
}

/** The server does not answer to the host name of the address (421). */
export class WrongHostError extends SclubError {
  override readonly name: string = "WrongHostError";
}

/** The server failed (500). Its log has the details. */
export class InternalError extends SclubError {
  override readonly name: string = "InternalError";
}

/** The server cannot do this (501), for example because it is a node of a cluster. */
export class UnsupportedError extends SclubError {
  override readonly name: string = "UnsupportedError";
}

/** The server cannot serve the request now (408, 502, 503, 504): try again later. */
export class UnavailableError extends SclubError {
  override readonly name: string = "UnavailableError";
}

/** Too many requests (429); `retryAfter` says when to try again. */
export class RateLimitedError extends UnavailableError {
  override readonly name: string = "RateLimitedError";
}

/** No connection, or no complete answer; `code` is `"unreachable"`, `"tls"`, `"broken"` or `"timeout"`. */
export class ConnectionFailedError extends SclubError {
  override readonly name: string = "ConnectionFailedError";
  /** The address that was asked. */
  readonly url: string;

  constructor(message: string, parts: ErrorParts = {}) {
    super(message, parts);
    this.url = parts.url ?? "";
  }
}

/** No connection or no answer within the timeout. */
export class TimedOutError extends ConnectionFailedError {
  override readonly name: string = "TimedOutError";
}

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
  // A browser hides the status of a redirect.
  const isRedirect = response.type === "opaqueredirect" || (status >= 300 && status < 400);
  const target = headers.get("location");
  const unsaid = isRedirect
    ? `the server answered with a redirect${target === null ? "" : ` to ${target}`}, which is not followed; give the address that it leads to as url`
    : `the server answered with HTTP status ${status} and no reason`;
  const kind = detail.code === "no_candidates" ? NoCandidatesError : (BY_STATUS[status] ?? SclubError);
  return new kind(detail.message ?? unsaid, {
    status: status === 0 ? undefined : status,
    code: detail.code ?? (isRedirect ? "redirect" : ""),
    field: detail.field,
    requestId: headers.get("x-request-id") ?? undefined,
    retryAfter: secondsOf(headers.get("retry-after")),
  });
}

/** The error for an answer that no sclub server gives. The request may have taken effect. */
export function badAnswer(response: Response, { why, cause }: { why?: string; cause?: unknown } = {}): SclubError {
  const requestId = response.headers.get("x-request-id") ?? undefined;
  const parts = { status: response.status, code: "bad_answer", requestId, mayBeDone: true, cause };
  return new SclubError(`the answer is not one of an sclub server${why === undefined ? "" : `: ${why}`}`, parts);
}

/** The error for a line of an answer that is not JSON; any other error is itself. */
export function badAnswerOf(failed: unknown): unknown {
  if (!(failed instanceof SyntaxError)) return failed;
  return new SclubError("the answer is not one of an sclub server", { status: 200, code: "bad_answer", mayBeDone: true, cause: failed });
}

interface Detail {
  message?: string | undefined;
  code?: string | undefined;
  field?: string | undefined;
}

/** The error in the body of an answer; empty if a proxy wrote it. */
function detailOf(body: string): Detail {
  try {
    const said = JSON.parse(body) as { error?: Record<string, unknown>; ready?: unknown; reason?: unknown };
    // `/readyz` has a reason instead.
    if (said.ready === false) return { message: textOf(said.reason) ?? "the server is not ready", code: "starting" };
    const { message, code, field } = said.error ?? {};
    return { message: textOf(message), code: textOf(code), field: textOf(field) };
  } catch {
    return {};
  }
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The seconds of the header Retry-After, which is a number or a date. */
function secondsOf(header: string | null): number | undefined {
  if (header === null) return undefined;
  if (/^\d+$/.test(header.trim())) return Number(header);
  // A date begins with the day of the week. `Date.parse` would take other texts too.
  const at = /^[A-Z][a-z]+,? /.test(header) ? Date.parse(header) : NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, (at - Date.now()) / 1000);
}

/** Codes of errors of Node.js at which nothing was sent. */
const NOT_SENT = new Set(["EAI_AGAIN", "ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "UND_ERR_CONNECT_TIMEOUT"]);

/** Codes of the limits that Node.js itself has, whatever the timeout of the client is. */
const LATE = new Set(["UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT"]);

/** Codes of OpenSSL, such as for certificates that are not trusted. */
const TLS = /^ERR_(TLS|SSL)_|CERT|UNABLE_TO_|INVALID_CA|HOSTNAME_MISMATCH/;

/** Those that can also come when the request was sent. */
const LATE_TLS = /ALERT|DECRYPT|BAD_RECORD|UNEXPECTED_EOF/;

interface Cause {
  code?: unknown;
  message?: unknown;
  syscall?: unknown;
  errors?: Cause[];
}

/** True if there was no connection, so that nothing was sent. */
function isUnsent(cause: Cause): boolean {
  // A host with several addresses has an error for each.
  if (cause.errors !== undefined && cause.errors.length > 0) return cause.errors.every(isUnsent);
  const isBefore = cause.syscall === "connect" || cause.syscall === "getaddrinfo" || cause.message === "bad port";
  return isBefore || NOT_SENT.has(String(cause.code));
}

/** The error for a `fetch` that failed. A browser does not say why: the request may have been sent. */
export function failureOf(url: string, failed: unknown): ConnectionFailedError {
  const cause = (failed as { cause?: Cause } | undefined)?.cause ?? {};
  const code = typeof cause.code === "string" ? cause.code : "";
  const isTls = TLS.test(code);
  const isLate = LATE.has(code);
  const isSent = isTls ? LATE_TLS.test(code) : !isUnsent(cause);
  const reason = String(cause.message || code || failed);
  const kind = isLate ? TimedOutError : ConnectionFailedError;
  return new kind(`no answer from ${url}: ${reason}`, {
    code: isTls ? "tls" : isLate ? "timeout" : isSent ? "broken" : "unreachable",
    mayBeDone: isSent,
    url,
    cause: failed,
  });
}
