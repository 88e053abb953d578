export { Client } from "./client.js";
export type { ClientOptions } from "./client.js";
export {
  ConflictError,
  ConnectionFailedError,
  ForbiddenError,
  GoneError,
  InternalError,
  InvalidError,
  NoCandidatesError,
  NotFoundError,
  RateLimitedError,
  SclubError,
  TimedOutError,
  UnauthorizedError,
  UnavailableError,
  UnsupportedError,
  WrongHostError,
} from "./errors.js";
export type {
  CallOptions,
  CatalogueItem,
  Condition,
  ExportLine,
  FeedbackRequest,
  Id,
  Item,
  ItemPatch,
  ItemsPut,
  RawFields,
  Recommendation,
  RecommendOptions,
  RecommendRequest,
  Reward,
  RewardParts,
  UserCard,
} from "./types.js";
export type { components, operations, paths } from "./openapi.js";
