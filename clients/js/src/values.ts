/** Checks and conversions of arguments, before anything is sent. */

import type { FeedbackRequest, Id, Item, Recommendation, RecommendOptions, RecommendRequest, Reward } from "./types.js";

/** The maximum size of one request with items, in characters and in lines. */
const PIECE_LENGTH = 1 << 20;
const PIECE_LINES = 5_000;

/** An id as text. */
export function idOf(id: Id, name: string): string {
  if (typeof id === "bigint" && (id < -(2n ** 63n) || id >= 2n ** 64n)) {
    throw new TypeError(`${name}: an id that is a number must be from -2^63 to 2^64-1; give a larger one as a string`);
  }
  if (typeof id === "bigint" || (typeof id === "number" && Number.isSafeInteger(id))) return String(id);
  if (typeof id === "number" && Number.isInteger(id)) {
    throw new TypeError(`${name} is ${id}, which a number cannot hold exactly; give its digits as a text, or a BigInt`);
  }
  if (typeof id !== "string" || id === "") {
    throw new TypeError(`${name} must be a text that is not empty, or a whole number: ${String(id)}`);
  }
  // Half of a character, which has no bytes in UTF-8.
  if (/\p{Surrogate}/u.test(id)) throw new TypeError(`${name} is not valid Unicode: ${JSON.stringify(id)}`);
  return id;
}

function idsOf(ids: Iterable<Id>, name: string): string[] {
  return listOf(ids, name).map((id, place) => idOf(id, `${name}[${place}]`));
}

/** The elements of a list, a set or something else that has several. A text is no list. */
export function listOf<T>(values: Iterable<T>, name: string): T[] {
  if (typeof values !== "object" || values === null || !(Symbol.iterator in values)) {
    throw new TypeError(`${name} must be a list, not ${values === null ? "null" : typeof values}`);
  }
  return [...values];
}

function numberOf(value: unknown, name: string): number {
  if (typeof value !== "number" || !Number.isFinite(value)) {
    const shown = typeof value === "string" ? JSON.stringify(value) : String(value);
    throw new TypeError(`${name} is ${shown}; it must be a finite number`);
  }
  return value;
}

/** A part of a path. `fetch` takes the names . and .. for steps in the path, even if they are encoded. */
export function segmentOf(value: unknown, name: string): string {
  const text = idOf(value as Id, name);
  if (text === "." || text === "..") throw new TypeError(`${name} is ${text}, which cannot be a part of a URL`);
  return encodeURIComponent(text);
}

/** The body of a request for a recommendation. */
export function askedOf(user: Id, options: RecommendOptions, where = ""): object {
  const { candidates, exclude, items, ...others } = options;
  return {
    ...others,
    user: idOf(user, `${where}user`),
    candidates: candidates === undefined ? undefined : idsOf(candidates, `${where}candidates`),
    exclude: exclude === undefined ? undefined : idsOf(exclude, `${where}exclude`),
    items: items?.map((item, place) => ({ ...item, id: idOf(item.id, `${where}items[${place}].id`) })),
  };
}

/** The same for a request of a batch: a user, or a user with options. */
export function askedInBatch(request: RecommendRequest, place: number): object {
  const where = `requests[${place}].`;
  if (typeof request !== "object" || request === null) return askedOf(request, {}, where);
  const { user, ...options } = request;
  return askedOf(user, options, where);
}

interface Given {
  reward?: number;
  rewards?: Iterable<number>;
  item?: Id;
  others?: number;
}

/** The body of feedback. */
export function givenOf(decision: string | Recommendation, reward: Reward, where = ""): object {
  const isObject = typeof reward === "object" && reward !== null;
  const parts: Given = !isObject ? { reward } : Symbol.iterator in reward ? { rewards: reward } : reward;
  const sent: Record<string, unknown> = { ...parts, decision: decisionOf(decision, `${where}decision`) };
  const { reward: one, rewards, item, others } = parts;
  if (one !== undefined || (rewards === undefined && others === undefined)) sent["reward"] = numberOf(one, `${where}reward`);
  if (rewards !== undefined) {
    sent["rewards"] = listOf(rewards, `${where}rewards`).map((value, place) => numberOf(value, `${where}rewards[${place}]`));
  }
  if (others !== undefined) sent["others"] = numberOf(others, `${where}others`);
  if (item !== undefined) sent["item"] = idOf(item, `${where}item`);
  return sent;
}

/** The same for feedback of a batch. */
export function givenInBatch(feedback: FeedbackRequest, place: number): object {
  if (typeof feedback !== "object" || feedback === null) {
    throw new TypeError(`feedback[${place}] must be an object with decision and reward`);
  }
  const { decision, ...reward } = feedback;
  return givenOf(decision, reward as Reward, `feedback[${place}].`);
}

function decisionOf(decision: string | Recommendation, name: string): string {
  const text: unknown = typeof decision === "object" && decision !== null ? decision.decision : decision;
  if (typeof text !== "string") throw new TypeError(`${name} must be a recommendation, or its decision`);
  return text;
}

/** JSON without what would be lost on the way: NaN and infinities would be null, maps and sets would be empty. `where` begins messages. */
export function toJson(value: unknown, where = ""): string {
  return JSON.stringify(value, (name, part: unknown) => {
    if (typeof part === "number") return numberOf(part, `${where}${name}`);
    if (part instanceof Map || part instanceof Set) throw new TypeError(`${where}${name} is a ${part.constructor.name}, which is not JSON`);
    // Arrays of numbers such as Float32Array.
    if (ArrayBuffer.isView(part) && Symbol.iterator in part) return [...(part as Float64Array)];
    return part;
  });
}

/** JSON lines in pieces of bounded size. No item is cut. */
export function piecesOf(items: Iterable<Item>): string[] {
  const pieces: string[] = [];
  let lines: string[] = [];
  let length = 0;
  for (const [place, item] of listOf(items, "items").entries()) {
    const line = toJson({ ...item, id: idOf(item?.id, `items[${place}].id`) }, `items[${place}]: `);
    if (lines.length === PIECE_LINES || (lines.length > 0 && length + line.length > PIECE_LENGTH)) {
      pieces.push(lines.join("\n"));
      lines = [];
      length = 0;
    }
    lines.push(line);
    length += line.length + 1;
  }
  if (lines.length > 0) pieces.push(lines.join("\n"));
  return pieces;
}
