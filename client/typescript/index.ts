/** All of the gateway's API, generated from its description (`api/`), and what a crawl takes from its start to its
 * items over connections that break. */

import { type Client, createClient, createConfig } from './api/client/index.js';
import { client } from './api/client.gen.js';
import { cancelJob, createCrawl, getJob, listJobItems } from './api/sdk.gen.js';
import type * as api from './api/types.gen.js';

export * from './api/sdk.gen.js';
export type * from './api/types.gen.js';
export { type Client, client };

/** What the gateway refuses. Programs go by `code`, such as `job_not_found`; `message` is for people. */
export class GatewayError extends Error {
  /** Later releases may have more. */
  readonly code: api.ErrorCode | (string & {});
  readonly detail: unknown;
  /** The field of the request that is wrong, such as `start_urls.0`. */
  readonly field: string | undefined;
  /** The request in the gateway's log. */
  readonly requestId: string | undefined;

  constructor(
    readonly status: number,
    problem: unknown,
    /** Seconds after which it may be asked again. */
    readonly retryAfter: number | undefined = undefined,
  ) {
    const { error, request_id } = (problem ?? {}) as Partial<api.Problem>;
    super(error?.message ?? `the answer is ${status}`);
    this.name = 'GatewayError';
    this.code = error?.code ?? 'http_error';
    this.detail = error?.detail;
    const { field } = (error?.detail ?? {}) as { field?: unknown };
    this.field = typeof field === 'string' ? field : undefined;
    this.requestId = request_id;
  }
}

/** A crawl has not ended within the seconds that `waitForJob` was given. It goes on. */
export class WaitTimeoutError extends Error {
  constructor(
    /** The job as it was known last. */
    readonly job: api.JobDetail | undefined,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'WaitTimeoutError';
  }
}

function refuse(of: Client): Client {
  of.interceptors.error.use((error, response) =>
    response
      ? new GatewayError(response.status, error, Number(response.headers.get('Retry-After')) || undefined)
      : error,
  );
  return of;
}

refuse(client);

/** Which gateway all calls go to that are given no `client`. Nothing but a gateway without keys needs no `key`. */
export function connect(baseUrl: string, key?: string): void {
  direct(client, baseUrl, key);
}

/** A gateway beside that of `connect`, or another user of it: the `client` of single calls. */
export function createGateway(baseUrl: string, key?: string): Client {
  return direct(refuse(createClient(createConfig({ throwOnError: true }))), baseUrl, key);
}

function direct(of: Client, baseUrl: string, key: string | undefined): Client {
  new URL(baseUrl, globalThis.location?.href); // throws here what would be taken for a gateway that is away
  of.setConfig({ baseUrl, headers: { Authorization: key ? `Bearer ${key}` : null } });
  return of;
}

// --- requests that are sent again

/** Answers of a gateway, or of a proxy, that is back some time. */
const AWAY = [429, 502, 503, 504];
/** Milliseconds: the first pause, which doubles, and the longest; and the longest that a gateway may ask for. */
const FIRST = 250;
const LONGEST = 30_000;
const ASKED_FOR = 120_000;

export interface CallOptions {
  /** Seconds for all of it, however often it is sent. */
  timeout?: number;
  signal?: AbortSignal;
  /** From `createGateway`; without it, the gateway of `connect`. */
  client?: Client;
}

function isAway(error: unknown): boolean {
  if (error instanceof GatewayError) return AWAY.includes(error.status);
  // of `fetch`: no connection, or one that broke; of a try: no answer in time
  return error instanceof TypeError || (error instanceof DOMException && error.name === 'TimeoutError');
}

/** Sends a request that may be sent twice until it is answered, each time for so many seconds at most. */
async function answered<T>(call: (signal: AbortSignal) => Promise<T>, seconds: number, options: CallOptions): Promise<T> {
  const end = Date.now() + 1000 * (options.timeout ?? Infinity);
  for (let longest = FIRST; ; longest = Math.min(LONGEST, 2 * longest)) {
    const late = new AbortController();
    // not `AbortSignal.timeout`, which lets Node.js end meanwhile: of a connection that is closed at once, Node.js 20
    // says nothing
    const time = Math.max(1, Math.min(1000 * seconds, end - Date.now()));
    const timer = setTimeout(() => late.abort(new DOMException('no answer in time', 'TimeoutError')), time);
    try {
      return await call(options.signal ? AbortSignal.any([options.signal, late.signal]) : late.signal);
    } catch (error) {
      const asked = error instanceof GatewayError ? 1000 * (error.retryAfter ?? 0) : 0;
      const pause = Math.max(Math.min(ASKED_FOR, asked), (longest * (1 + Math.random())) / 2);
      if (options.signal?.aborted || !isAway(error) || Date.now() + pause >= end) throw error;
      await passed(pause, options.signal);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Resolves after so many milliseconds, or rejects as soon as it is no longer wanted. */
async function passed(time: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, time);
    signal?.addEventListener('abort', stop);
  });
}

// --- a crawl, from its start to its items

/** Asks for a crawl. If the answer is lost or the gateway is away, it is asked again, for a minute if no `timeout` says
 * otherwise; by its idempotency key it stays one job. */
export async function startCrawl(crawl: api.CrawlRequest, options: CallOptions = {}): Promise<api.CrawlReceipt> {
  // `randomUUID` is there in pages of https only
  const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0'));
  const headers = { 'Idempotency-Key': key.join('') };
  const call = (signal: AbortSignal) => createCrawl({ body: crawl, headers, signal, client: options.client });
  return (await answered(call, 30, { timeout: 60, ...options })).data;
}

/** Cancels a job, or a schedule by its id. A job that has ended is a `GatewayError` (409). */
export async function cancel(jobId: string, options: CallOptions = {}): Promise<api.CancelJobResponse> {
  const call = (signal: AbortSignal) => cancelJob({ path: { job_id: jobId }, signal, client: options.client });
  return (await answered(call, 30, { timeout: 60, ...options })).data;
}

const ENDED: readonly api.JobStatus[] = ['finished', 'partial', 'error', 'cancelled'];
/** Seconds that the gateway waits at most for a job's end, and that its answer may take on top. */
const WAIT = 30;
const GRACE = 10;

/** The job once it has ended, however it has: see its `status`. `timeout` is for all of it: `WaitTimeoutError` after
 * that, and the crawl goes on. A gateway that is away is asked again. */
export async function waitForJob(jobId: string, options: CallOptions = {}): Promise<api.JobDetail> {
  const end = Date.now() + 1000 * (options.timeout ?? Infinity);
  const message = `job ${jobId} has not ended within ${options.timeout} seconds`;
  let job: api.JobDetail | undefined;
  // the first answer comes at once, so that somebody knows of the job how it is doing
  for (let wait = 0; ; ) {
    const left = (end - Date.now()) / 1000;
    if (left <= 0) throw new WaitTimeoutError(job, message);
    const call = (signal: AbortSignal) => getJob({ path: { job_id: jobId }, query: { wait }, signal, client: options.client });
    try {
      const { data } = await answered(call, wait + GRACE, { ...options, timeout: left });
      // a schedule, which does not end, cannot be waited for: that was refused
      if (data.kind === 'job') job = data;
    } catch (error) {
      if (options.signal?.aborted || !isAway(error)) throw error;
      throw new WaitTimeoutError(job, message, { cause: error });
    }
    if (job && ENDED.includes(job.status)) return job;
    wait = Math.max(1, Math.min(WAIT, Math.floor((end - Date.now()) / 1000)));
  }
}

interface Events {
  log: api.LogLineData;
  status: api.StatusData;
  progress: api.ProgressView;
  /** Lines from one position to another are no longer kept. */
  gap: api.GapData;
  /** The job has ended; nothing comes after it. */
  end: api.JobStatusView | api.ScheduleStatusView;
  /** The connection broke. It goes on after the last event. */
  dropped: undefined;
}

/** An event of a job, by its `event`. `id` is where `followJob` goes on with `after`. */
export type JobEvent = { [Name in keyof Events]: { event: Name; id: string; data: Events[Name] } }[keyof Events];

export interface FollowOptions {
  /** Only lines of this level or higher. */
  level?: string;
  /** The id of the last event that is known. */
  after?: string;
  /** Seconds without a gateway after which it is an error; without it, the gateway is waited for. */
  patience?: number;
  signal?: AbortSignal;
  client?: Client;
}

/** Milliseconds without a word after which a connection is dead: the gateway sends a comment every 15 s. */
const SILENCE = 45_000;

/** Each event of a job (or of a schedule's run) from the first one to the end: none is left out and none comes twice,
 * however often the connection breaks. */
export async function* followJob(jobId: string, options: FollowOptions = {}): AsyncGenerator<JobEvent, void> {
  let id = options.after ?? '';
  let pause = 2000;
  let heard = Date.now();
  for (;;) {
    try {
      for await (const frame of connection(jobId, id, options)) {
        heard = Date.now();
        id = frame.id ?? id;
        pause = Number(frame.retry ?? pause);
        if (frame.data) yield { event: frame.event, id, data: JSON.parse(frame.data) } as JobEvent;
        if (frame.event === 'end') return;
        heard = Date.now();
      }
    } catch (error) {
      if (error === OVER) return;
      if (options.signal?.aborted || (error instanceof GatewayError && !AWAY.includes(error.status))) throw error;
      if (Date.now() - heard > 1000 * (options.patience ?? Infinity)) throw error;
    }
    yield { event: 'dropped', id, data: undefined };
    await passed(pause, options.signal);
  }
}

/** 204: there is nothing left to see. */
const OVER = new Error();

type Frame = Partial<Record<string, string>>;

async function* connection(jobId: string, id: string, options: FollowOptions): AsyncGenerator<Frame, void> {
  const { level, signal } = options;
  const silent = new AbortController();
  const listen = () => setTimeout(() => silent.abort(new Error('the gateway is silent')), SILENCE);
  let timer = listen();
  try {
    const { data, response } = await (options.client ?? client).get<{ 200: ReadableStream<BufferSource> }, unknown, true>({
      url: '/jobs/{job_id}/logs',
      path: { job_id: jobId },
      query: { level },
      headers: { Accept: 'text/event-stream', 'Last-Event-ID': id || null },
      signal: signal ? AbortSignal.any([signal, silent.signal]) : silent.signal,
      parseAs: 'stream',
      cache: 'no-store',
    });
    if (response.status === 204) throw OVER;
    const reader = data.pipeThrough(new TextDecoderStream()).getReader();
    try {
      let frame: Frame = {};
      let text = '';
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        clearTimeout(timer);
        timer = listen();
        const lines = (text + piece.value).split(/\r\n|\n|\r(?=.)/s);
        text = lines.pop() ?? '';
        for (const line of lines) {
          const [, name = '', value = ''] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
          if (line) frame[name] = name === 'data' && frame.data ? `${frame.data}\n${value}` : value;
          else {
            yield frame;
            frame = {};
          }
        }
      }
    } finally {
      await reader.cancel();
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Seconds that a page of large items may take. */
const PAGE = 300;

/** Each item of a job, page by page; of one that goes on, those that there are. A page whose answer breaks off is asked
 * for again. */
export async function* jobItems(
  jobId: string,
  query: Omit<NonNullable<api.ListJobItemsData['query']>, 'after' | 'format'> = {},
  { signal, client }: Pick<CallOptions, 'signal' | 'client'> = {},
): AsyncGenerator<api.ItemsPage['items'][number], void> {
  for (let after: string | null | undefined; after !== null; ) {
    const page = { limit: 1000, ...query, after };
    const call = (signal: AbortSignal) => listJobItems({ path: { job_id: jobId }, query: page, signal, client });
    const { data } = await answered(call, PAGE, { timeout: 2 * PAGE, signal });
    yield* data.items;
    after = data.next;
  }
}
