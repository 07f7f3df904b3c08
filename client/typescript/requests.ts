/** Requests that are sent again until they are answered, each within its limits. */

import { ApiError, GatewayUnreachableError, InvalidAnswerError, TimeoutError } from './errors.js';

/** How long a call may take, and how often its request is sent. */
export interface CallOptions {
  /** Seconds for the whole call, however often its request is sent: after that there is a `TimeoutError`. */
  timeout?: number | undefined;
  /** How often the request is sent again at most. Requests that may be carried out twice (GET, HEAD, PUT, DELETE, and
   * those with an `Idempotency-Key`) are sent again; others only if they were certainly not carried out. */
  retries?: number | undefined;
  /** Ends the call, also in a pause between two tries. The error is the signal's `reason`. */
  signal?: AbortSignal | null | undefined;
}

/** A request that is about to be sent again. */
export interface Retry {
  method: string;
  url: string;
  /** How often the request is sent again, this time included: 1 for the first time. */
  attempt: number;
  /** Seconds until it is sent. */
  pause: number;
  /** What went wrong. */
  error: unknown;
}

/** Options of a call, with limits that the client's own methods set. */
export interface RequestLimits extends CallOptions {
  /** Seconds without a byte after which a connection is dead, and the request is sent again if that is allowed. */
  silence?: number | undefined;
  /** Whether the request may be sent twice, whatever its method is. */
  repeatable?: boolean | undefined;
  /** Called before each pause after which a request is sent again. What it throws ends the call. */
  onRetry?: ((retry: Retry) => void) | undefined;
  /** The limit of what the call is a part of, in the place of `timeout`.
   * @internal */
  deadline?: Deadline | undefined;
}

/** Statuses of a gateway, or of a proxy before it, that is away for a time. */
const AWAY: readonly number[] = [429, 502, 503, 504];
/** The code of a 504 that means: the run goes on, so the request need not be sent again. */
const GOES_ON = 'run_goes_on';
/** What a gateway says that has failed itself. */
const FAILED = 500;
const REPEATABLE: readonly string[] = ['GET', 'HEAD', 'PUT', 'DELETE'];
/** Milliseconds: the first pause, which doubles each time, the longest, and the longest that a gateway may ask for. */
const FIRST = 250;
const LONGEST = 30_000;
const ASKED_FOR = 120_000;
/** Milliseconds: an answer that the gateway has waited with takes longer. */
const QUICK = 1000;
/** Milliseconds: the longest pause after an answer that the gateway has not waited with. */
const LONGEST_LOOK = 5000;
/** Milliseconds. A longer timer would be over at once. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** Statuses with which a request was certainly not carried out. */
const NOT_DONE: readonly number[] = [429, 503];
/** Codes of runtimes for a connection that was not made. Browsers have no such code. */
const NOT_SENT: readonly unknown[] = [
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
  'ConnectionRefused',
];

/** Whether the request was certainly not carried out. */
function isNotDone(error: unknown): boolean {
  if (error instanceof ApiError) return NOT_DONE.includes(error.status);
  return error instanceof GatewayUnreachableError && !error.wasSent;
}

/** What `fetch` says, as an error that says what was wrong first: `fetch` itself says that it failed. */
function unreachable(origin: string, error: unknown, isBegun: boolean): GatewayUnreachableError {
  let reason = '';
  let wasSent = true;
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const { code } = cause as { code?: unknown };
    reason = cause.message || String(code ?? cause.name);
    if (NOT_SENT.includes(code)) wasSent = false;
  }
  const what = isBegun ? `the answer of ${origin} broke off` : `the gateway at ${origin} does not answer`;
  return new GatewayUnreachableError(reason ? `${what}: ${reason}` : what, wasSent, { cause: error });
}

/** The limits without those that are `undefined`, so that these hide no default. */
export function known<T extends object>(limits: T): T {
  return Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined)) as T;
}

/** Whether the gateway is away, and may come back. */
export function isAway(error: unknown): boolean {
  if (error instanceof ApiError) return AWAY.includes(error.status) && error.code !== GOES_ON;
  return error instanceof GatewayUnreachableError;
}

/** Whether another answer may come if the request is sent again. */
function mayPass(error: unknown): boolean {
  return isAway(error) || (error instanceof ApiError && error.status === FAILED);
}

/** The moment at which a call must be done; without `seconds` there is none. */
export class Deadline {
  readonly #end: number;

  constructor(readonly seconds = Number.POSITIVE_INFINITY) {
    this.#end = performance.now() + 1000 * seconds;
  }

  /** Milliseconds until then. */
  get left(): number {
    return Math.max(0, this.#end - performance.now());
  }

  get isSet(): boolean {
    return this.#end < Number.POSITIVE_INFINITY;
  }

  /** It, or an earlier one after so many seconds. */
  within(seconds: number): Deadline {
    return 1000 * seconds < this.left ? new Deadline(seconds) : this;
  }

  /** Throws once the time is over. */
  check(): void {
    if (!this.left) throw this.error(undefined);
  }

  error(cause: unknown): TimeoutError {
    return new TimeoutError(`it was not done within ${this}`, cause === undefined ? {} : { cause });
  }

  toString(): string {
    return `${Number(this.seconds.toFixed(3))} seconds`;
  }
}

/** Not `AbortSignal.timeout`, during which Node.js may end: Node.js 20 does not report a connection that is closed at
 * once. */
function timer(time: number, act: () => void): () => void {
  if (time > LONGEST_TIMER) return () => {};
  const running = setTimeout(act, time);
  return () => clearTimeout(running);
}

/** Resolves after so many milliseconds, or rejects as soon as `signal` is aborted. */
export async function passed(time: number, signal?: AbortSignal | null): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const stop = () => {
      cancel();
      reject(signal?.reason);
    };
    const cancel = timer(time, () => {
      signal?.removeEventListener('abort', stop);
      resolve();
    });
    signal?.addEventListener('abort', stop, { once: true });
  });
}

/** Milliseconds before something is asked for again, for the first time with 0. */
function pauseBefore(again: number): number {
  return (Math.min(LONGEST, FIRST * 2 ** again) * (1 + Math.random())) / 2;
}

/** Pauses in loops that ask again and again, where the gateway should wait with its answer and does not: a proxy that
 * keeps answers would be asked hundreds of times in a second. */
export class Pace {
  #asked = performance.now();
  #quick = 0;

  constructor(
    private readonly deadline: Deadline,
    private readonly signal: AbortSignal | null | undefined,
  ) {}

  /** Resolves when to ask again, which is at once if the answer took its time or said something new. */
  async next(isNew: boolean): Promise<void> {
    this.#quick = isNew || performance.now() - this.#asked >= QUICK ? 0 : this.#quick + 1;
    const pause = this.#quick ? Math.min(LONGEST_LOOK, pauseBefore(this.#quick), this.deadline.left) : 0;
    if (pause) await passed(pause, this.signal);
    this.#asked = performance.now();
  }
}

/** Rejects once `signal` is aborted, unless nobody listens any more. */
function aborted(signal: AbortSignal, listening: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason), { once: true, signal: listening });
  });
}

/** One try of a request. Its `signal` and its `fetch` keep the limits until the whole answer was read. */
export class Attempt {
  readonly signal: AbortSignal;
  /** The error of this try, kept because some browsers replace the errors of a body. */
  failure: unknown;
  isRepeatable: boolean;
  method = '';
  url = '';
  readonly #late = new AbortController();
  readonly #silence: number;
  #origin = '';
  #isBegun = false;

  constructor(
    private readonly send: typeof fetch,
    private readonly limits: RequestLimits,
    private readonly deadline: Deadline,
    private readonly before: unknown,
  ) {
    this.signal = limits.signal ? AbortSignal.any([limits.signal, this.#late.signal]) : this.#late.signal;
    this.isRepeatable = limits.repeatable ?? false;
    this.#silence = 1000 * (limits.silence ?? Number.POSITIVE_INFINITY);
  }

  readonly fetch: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    this.method = request.method;
    this.url = request.url;
    this.#origin = new URL(request.url).origin;
    this.isRepeatable ||= REPEATABLE.includes(request.method) || request.headers.has('Idempotency-Key');
    const over = timer(this.deadline.left, () => this.#late.abort(this.deadline.error(this.before)));
    try {
      const { send } = this; // because a browser's `fetch` must not be called as a method
      const response = await this.#heard(send(request));
      this.#isBegun = true;
      if (response.body && response.headers.get('Content-Length') !== '0')
        return new Response(this.#watched(response.body, over), response);
      over();
      return response;
    } catch (error) {
      over();
      throw error;
    }
  };

  /** The result of `what`, within the limits, even if a `fetch` of the program's own ignores the signal. */
  async #heard<T>(what: Promise<T>): Promise<T> {
    const stop = timer(this.#silence, () => {
      const message = `the gateway at ${this.#origin} is silent for ${this.limits.silence} seconds`;
      this.#late.abort(new GatewayUnreachableError(message, true));
    });
    const listening = new AbortController();
    try {
      return await Promise.race([what, aborted(this.signal, listening.signal)]);
    } catch (cause) {
      this.failure = this.signal.aborted ? this.signal.reason : unreachable(this.#origin, cause, this.#isBegun);
      throw this.failure;
    } finally {
      listening.abort();
      stop();
    }
  }

  #watched(body: ReadableStream<Uint8Array>, over: () => void): ReadableStream<Uint8Array> {
    const reader = body.getReader();
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          try {
            const { done, value } = await this.#heard(reader.read());
            if (!done) return controller.enqueue(value);
            over();
            controller.close();
          } catch (error) {
            over();
            reader.cancel(error).catch(() => {}); // the body may have failed
            controller.error(error);
          }
        },
        cancel: (reason) => {
          over();
          return reader.cancel(reason);
        },
      },
      { highWaterMark: 0 }, // read only on demand, so that a slow reader is not taken for a silent gateway
    );
  }
}

/** A `SyntaxError` is about the answer, because requests are written without `JSON.parse`. */
function read(error: unknown): unknown {
  return error instanceof SyntaxError ? new InvalidAnswerError('the answer is no JSON', { cause: error }) : error;
}

/** The value of a text that the gateway has sent. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw read(error);
  }
}

/** The answer to the call `name`, which has to be an object with these fields, and with a list of `rows`. */
export function record(answer: unknown, name: string, fields: readonly string[], rows?: string): object {
  const wrong = (what: string) => new InvalidAnswerError(`the answer to ${name} is not a gateway's: it ${what}`);
  if (typeof answer !== 'object' || !answer || Array.isArray(answer)) throw wrong('is no object');
  const has = new Map(Object.entries(answer));
  const lacking = fields.find((field) => has.get(field) === undefined);
  if (lacking) throw wrong(`has no ${lacking}`);
  if (rows && !Array.isArray(has.get(rows))) throw wrong(`has no list of ${rows}`);
  return answer;
}

/** Sends a request until it is answered, or may not be sent again. */
export async function answered<T>(
  once: (attempt: Attempt) => Promise<T>,
  send: typeof fetch,
  limits: RequestLimits & { retries: number },
): Promise<T> {
  const deadline = limits.deadline ?? new Deadline(limits.timeout);
  let before: unknown;
  for (let again = 0; ; again++) {
    const attempt = new Attempt(send, limits, deadline, before);
    try {
      return await once(attempt);
    } catch (error) {
      limits.signal?.throwIfAborted();
      before = attempt.failure ?? read(error);
      const asked = before instanceof ApiError ? 1000 * (before.retryAfter ?? 0) : 0;
      const pause = Math.max(asked, pauseBefore(again));
      const mayRepeat = attempt.isRepeatable || isNotDone(before);
      const isAllowed = mayRepeat && again < limits.retries && asked <= ASKED_FOR;
      if (!isAllowed || !mayPass(before) || pause >= deadline.left) throw before;
      const { method, url } = attempt;
      limits.onRetry?.({ method, url, attempt: again + 1, pause: pause / 1000, error: before });
      await passed(pause, limits.signal);
    }
  }
}
