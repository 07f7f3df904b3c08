/** What can go wrong. All errors that this package makes are a `DiscoveryBotError`. */

import type { ErrorCode, JobDetail, Problem } from './api/types.gen.js';

/** Base of all errors that this package throws on purpose. */
export class DiscoveryBotError extends Error {
  override name = 'DiscoveryBotError';
}

/** The gateway refused the request, or failed. Programs go by `code`, such as `job_not_found`; `message` is for
 * people. */
export class ApiError extends DiscoveryBotError {
  override name = 'ApiError';
  /** Later releases may have more. An answer that is not the gateway's, but a proxy's, is an `http_error`. */
  readonly code: ErrorCode | (string & {});
  /** Further facts, by `code`. */
  readonly detail: unknown;
  /** The field of the request that is wrong, such as `start_urls.0`. */
  readonly field: string | undefined;
  /** Names the request in the gateway's log. */
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

/** No answer, or not all of it, also after all retries; `cause` is what `fetch` says. A request that is not sent twice
 * may have been carried out all the same. */
export class GatewayUnreachableError extends DiscoveryBotError {
  override name = 'GatewayUnreachableError';
}

/** What answers is no JSON, though it should be: something else answers than the gateway, or changes what it says.
 * `cause` is the `SyntaxError`. */
export class InvalidAnswerError extends DiscoveryBotError {
  override name = 'InvalidAnswerError';
}

/** It was not done within its `timeout`. `cause` is what went wrong last, if anything did. */
export class TimeoutError extends DiscoveryBotError {
  override name = 'TimeoutError';
}

/** A crawl has not ended within the `timeout` of `waitForJob`. It goes on. */
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

/** A call of a webhook was not made by whoever has the secret, or long ago. */
export class WebhookError extends DiscoveryBotError {
  override name = 'WebhookError';
}
