/** Crawl with a DiscoveryBot platform: `DiscoveryBot` submits, follows, collects and cancels; each other call of the
 * API is a function that takes it as its `client`. */

export * from './api/sdk.gen.js';
export type * from './api/types.gen.js';
export * from './client.js';
export {
  ApiError,
  ConflictError,
  CrawlFailedError,
  CursorExpiredError,
  DiscoveryBotError,
  ForbiddenError,
  GatewayUnreachableError,
  InvalidAnswerError,
  InvalidRequestError,
  KeyRefusedError,
  NoGatewayError,
  NotAJobError,
  NotFoundError,
  requireGood,
  TimeoutError,
  TooManyRequestsError,
  UnavailableError,
  WaitTimeoutError,
  WebhookError,
} from './errors.js';
export { each, type List, type Page, type PageOf, type Pages, pages, type Row } from './pages.js';
export type { CallOptions, RequestLimits, Retry } from './requests.js';
export type { StreamOptions } from './events.js';
export type { Exported, Format, KeyedOptions, Listed, ListLimits, PageLimits } from './methods.js';
export type { Resources } from './resources.js';
export { VERSION } from './version.js';
export * from './webhooks.js';
