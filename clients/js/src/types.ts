/** Arguments and answers, derived from the generated description of the API. */

import type { components, paths } from "./openapi.js";

type Schemas = components["schemas"];

/** A part of a request. Its lists may be readonly. */
type Sent<T> = T extends readonly (infer E)[] ? readonly Sent<E>[] : T extends object ? { [K in keyof T]: Sent<T[K]> } : T;

/**
 * The id of a user or an item. A whole number is the same id as its digits. One above 2^53 must be a text or a BigInt, and one
 * that has more than 64 bits a text.
 */
export type Id = string | number | bigint;

/** A recommendation: a `decision` and the items to show, best first. */
export type Recommendation = Schemas["RecommendResponse"];

/** An item of the catalogue. */
export type CatalogueItem = Schemas["CatalogueItem"];

/** Changes of an item, or on a server with a transform its raw fields. */
export type ItemPatch = (Omit<Sent<Schemas["ItemPatch"]>, "features"> & { features?: Numbers }) | RawFields;

/** The result of an upload of items. */
export type ItemsPut = Schemas["ItemsPut"];

/** What is known of a user, and why the user is in a cluster. */
export type UserCard = Schemas["UserCard"];

/** A condition of a filter: a value, a list of values, or `{any, all, none, min, max}`. */
export type Condition = Sent<Schemas["Condition"]>;

/** A line of the export: an item that was shown, and its reward. */
export type ExportLine = Schemas["ExportLine"];

/** How often an item was shown, and its rewards. */
export type ItemFigures = Schemas["ItemFigures"];

/** An experiment with its results. */
export type Experiment = Schemas["ExperimentCard"];

/** An experiment to start. */
export type ExperimentRequest = Sent<Schemas["ExperimentRequest"]>;

/** A space. */
export type Space = Schemas["SpaceCard"];

/** Settings of a space, by their names as flags of `sclub serve`. */
export type SpaceSettings = Sent<Schemas["SpaceSettings"]>;

/** An event of the stream. */
export type StreamEvent =
  | { event: "state"; data: Schemas["SecondCard"] }
  | { event: "change"; data: Schemas["HistoryEntry"] }
  | { event: "missed"; data: number };

// A schema with `anyOf` is a union of which only one member has all properties; the others are conditions on some of them.
type RecommendFields = Omit<Extract<Schemas["RecommendRequest"], { user: unknown }>, "user" | "items" | "candidates" | "exclude" | "filter">;

/** Numbers: a list, or an array such as `Float32Array`. */
export type Numbers = readonly number[] | Float32Array | Float64Array;

/** Options of `recommend`. Candidates are the whole catalogue, some of its items (`candidates`, `filter`), or `items`. */
export type RecommendOptions = RecommendFields & { exclude?: Iterable<Id> } & (
    | { candidates?: Iterable<Id>; filter?: Record<string, Condition>; items?: never }
    | { items: readonly { id: Id; features: Numbers }[]; candidates?: never; filter?: never }
  );

/** A request of a batch: a user, or a user with options. */
export type RecommendRequest = Id | ({ user: Id } & RecommendOptions);

/** The reward of one item, of a list, or of everything that was shown. */
export type RewardParts =
  | { reward: number; item?: Id; others?: number; rewards?: never }
  | { rewards: Numbers; others?: number; reward?: never; item?: never }
  | { others: number; reward?: never; rewards?: never; item?: never };

/** A reward: of the first item, of the items in the order shown, or with more to it. */
export type Reward = number | Numbers | RewardParts;

/** Feedback of a batch. */
export type FeedbackRequest = { decision: string | Recommendation } & RewardParts;

/** Raw fields of an item, such as title, tags and price: a server with `--features` makes features of them. */
export interface RawFields {
  title?: string | null;
  tags?: readonly string[] | string | null;
  available?: boolean;
  data?: Record<string, unknown> | null;
  features?: never;
  [field: string]: unknown;
}

/** An item to put into the catalogue: with its features, or with raw fields. */
export type Item = (Omit<Sent<Schemas["ItemLine"]>, "id" | "features"> & { id: Id; features: Numbers }) | ({ id: Id } & RawFields);

/** Options of every call. */
export interface CallOptions {
  /** Cancels the call: it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Milliseconds for each attempt, in place of the client's. */
  timeout?: number | undefined;
  /** The maximum number of retries, in place of the client's. */
  retries?: number | undefined;
}

// The types of `call`.

export type Method = "get" | "put" | "post" | "delete" | "patch";
export type Path = keyof paths;

/** The methods of a path whose answer is JSON. */
export type MethodOf<P extends Path> = {
  [M in Method]: paths[P][M] extends { responses: { 200: { content: { "application/json": unknown } } } } ? M : never;
}[Method];

type Json<C> = C extends { "application/json": infer J } ? J : unknown;
type ParametersOf<O> = O extends { parameters: infer P } ? P : never;
type Part<P, Name extends string> = P extends { [N in Name]: infer V }
  ? { [N in Name]: V }
  : P extends { [N in Name]?: infer V }
    ? [V & {}] extends [never]
      ? { [N in Name]?: never }
      : { [N in Name]?: V }
    : { [N in Name]?: never };
type BodyPart<O> = O extends { requestBody: { content: infer C } }
  ? { body: Sent<Json<C>> }
  : O extends { requestBody?: { content: infer C } }
    ? { body?: Sent<Json<C>> }
    : { body?: never };

/** The arguments of a call: parts of the path, query and body. */
export type Arguments<P extends Path, M extends Method> = Part<ParametersOf<paths[P][M]>, "path"> &
  Part<ParametersOf<paths[P][M]>, "query"> &
  BodyPart<paths[P][M]>;

type Content<R, S extends number> = R extends { [status in S]: { content: infer C } } ? Json<C> : never;

/** The answer of a call. */
export type AnswerOf<P extends Path, M extends Method> = paths[P][M] extends { responses: infer R }
  ? Content<R, 200> | Content<R, 201>
  : never;
