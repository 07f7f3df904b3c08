/** The errors of this package. All of them are a `DiscoveryBotError`. */

import type { ErrorCode, JobDetail, Problem, ScheduleJobView } from './api/types.gen.js';

/** Base of all errors that this package throws on purpose. */
export class DiscoveryBotError extends Error {
  override name = 'DiscoveryBotError';
}

/** The gateway refused the request, or failed. Programs go by `code`, such as `job_not_found`; `message` is for
 * people. */
export class ApiError extends DiscoveryBotError {
  override name = 'ApiError';
  /** Later releases may have more codes. The error of a proxy, not of the gateway, is an `http_error`. */
  readonly code: ErrorCode | (string & {});
  /** Further facts, which differ from code to code. */
  readonly detail: unknown;
  /** The field of the request that is wrong, such as `start_urls.0`. */
  readonly field: string | undefined;
  /** The request's id in the gateway's log. */
  readonly requestId: string | undefined;

  constructor(
    /** The HTTP status. */
    readonly status: number,
    problem: unknown,
    /** Seconds after which the gateway wants to be asked again. */
    readonly retryAfter: number | undefined = undefined,
  ) {
    const { error, request_id } = (problem ?? {}) as Partial<Problem>;
    super(error?.message ?? `the answer is ${status}`);
    this.code = error?.code ?? 'http_error';
    this.detail = error?.detail;
    const { field } = (error?.detail ?? {}) as { field?: unknown };
    this.field = typeof field === 'string' ? field : undefined;
    this.requestId = request_id;
  }
}

/** 401: the gateway wants a key, or does not know this one. */
export class KeyRefusedError extends ApiError {
  override name = 'KeyRefusedError';
}

/** 403: the key does not allow the request, or a URL may not be fetched. */
export class ForbiddenError extends ApiError {
  override name = 'ForbiddenError';
}

/** 404: the object does not exist, or belongs to another user. */
export class NotFoundError extends ApiError {
  override name = 'NotFoundError';
}

/** 409: the state of the object does not allow the request. */
export class ConflictError extends ApiError {
  override name = 'ConflictError';
}

/** 410: changes after this cursor are no longer kept. Read the dataset's items, and go on after their `seq`. */
export class CursorExpiredError extends ApiError {
  override name = 'CursorExpiredError';
}

/** 422: a value is wrong; `field` names it. */
export class InvalidRequestError extends ApiError {
  override name = 'InvalidRequestError';
}

/** 429: a limit is reached, even after all retries. The request was not carried out. */
export class TooManyRequestsError extends ApiError {
  override name = 'TooManyRequestsError';
}

/** 503, and 502 and 504 of a proxy: the gateway cannot answer now, even after all retries. */
export class UnavailableError extends ApiError {
  override name = 'UnavailableError';
}

/** The answer does not come from a gateway, or a login or a redirect is before it: the address may be wrong. That a job
 * or another object does not exist is a `NotFoundError` instead. */
export class NoGatewayError extends ApiError {
  override name = 'NoGatewayError';
}

const OF_STATUS: Readonly<Record<number, typeof ApiError>> = {
  401: KeyRefusedError,
  403: ForbiddenError,
  404: NotFoundError,
  409: ConflictError,
  410: CursorExpiredError,
  422: InvalidRequestError,
  429: TooManyRequestsError,
  502: UnavailableError,
  503: UnavailableError,
  504: UnavailableError,
};
/** Statuses below 500 that a proxy may send itself, with a gateway behind it. An answer that is not in a gateway's form
 * and has another status comes from something else than a gateway. */
const OF_PROXIES: readonly number[] = [304, 401, 403, 407, 408, 413, 414, 425, 429, 431];
/** How many characters of such an answer are in the message. */
const SHOWN = 80;

/** The error for an answer. An answer that is not in a gateway's form comes from a proxy, or from something else at a
 * wrong address: then a `NotFoundError` would say something wrong about the object. */
export function errorOf(request: Request, response: Response, told: unknown): ApiError {
  const { status, headers } = response;
  const retryAfter = seconds(headers.get('Retry-After'));
  const Kind = OF_STATUS[status] ?? ApiError;
  const { error } = Object(told) as Partial<Problem>;
  if (error) return new Kind(status, told, retryAfter);
  const text = (typeof told === 'string' ? told : JSON.stringify(told)).replace(/\s+/g, ' ').trim();
  const begin = text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text;
  const where = headers.get('Location');
  const more = [where && `it leads to ${where}`, begin].filter((one) => one).join(': ');
  const { origin, pathname } = new URL(request.url);
  const said = `${request.method} ${origin}${pathname} is answered ${status}, but not as a gateway does`;
  const problem = { error: { message: more ? `${said}: ${more}` : said } };
  if (status >= 500 || OF_PROXIES.includes(status)) return new Kind(status, problem, retryAfter);
  return new NoGatewayError(status, problem);
}

/** The seconds in the header `Retry-After`, which is a number of seconds or a date. */
function seconds(header: string | null): number | undefined {
  if (!header) return undefined;
  const left = Number.isNaN(Number(header)) ? (Date.parse(header) - Date.now()) / 1000 : Number(header);
  return left > 0 ? left : undefined;
}

/** No answer, or only a part of it, even after all retries; `cause` is the error of `fetch`. A request that may not be
 * sent twice may have been carried out all the same. */
export class GatewayUnreachableError extends DiscoveryBotError {
  override name = 'GatewayUnreachableError';

  constructor(
    message: string,
    /** Whether the request may have been carried out; `false` where no connection was made. Browsers do not say it. */
    readonly wasSent: boolean,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The answer should be JSON, and is not, or it lacks what every such answer of a gateway has: it does not come from
 * the gateway, or was changed on its way. `cause` is the `SyntaxError`, if there is one. */
export class InvalidAnswerError extends DiscoveryBotError {
  override name = 'InvalidAnswerError';
}

/** The call was not done within its `timeout`. `cause` is the last error, if there was one. */
export class TimeoutError extends DiscoveryBotError {
  override name = 'TimeoutError';
}

/** A crawl has not ended within the `timeout` of `waitForJob`. The crawl goes on. */
export class WaitTimeoutError extends TimeoutError {
  override name = 'WaitTimeoutError';

  constructor(
    message: string,
    /** The job as it was known last; `undefined` if the gateway was away all the time. */
    readonly job: JobDetail | undefined,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The id is that of a schedule: `client.schedules.get` has it. */
export class NotAJobError extends DiscoveryBotError {
  override name = 'NotAJobError';
}

/** What was found by an id, if it is a job. */
export function jobOf(found: JobDetail | ScheduleJobView): JobDetail {
  if (found.kind === 'job') return found;
  throw new NotAJobError(`${found.job_id} is a ${found.kind}, not a job: client.schedules.get has it`);
}

/** A crawl ended as `error` or `cancelled`, and `requireGood` was asked for more. */
export class CrawlFailedError extends DiscoveryBotError {
  override name = 'CrawlFailedError';

  constructor(readonly job: JobDetail) {
    super(`job ${job.job_id}: ${job.status}: ${job.message ?? ''}`);
  }
}

/** The job itself. Throws `CrawlFailedError` if it has failed or was cancelled. */
export function requireGood(job: JobDetail): JobDetail {
  if (job.status === 'error' || job.status === 'cancelled') throw new CrawlFailedError(job);
  return job;
}

/** A call of a webhook is not signed with the secret, or is too old. */
export class WebhookError extends DiscoveryBotError {
  override name = 'WebhookError';
}
