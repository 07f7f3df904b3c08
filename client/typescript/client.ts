/** The client of a gateway: all calls of the API, and what a crawl takes from its start to its items over connections
 * that break. */

import { type Client, createClient, createConfig } from './api/client/index.js';
import {
  createCrawl,
  deployVersion,
  getDatasetRun,
  getJob,
  getVersionDependencies,
  listDatasetChanges,
} from './api/sdk.gen.js';
import type * as api from './api/types.gen.js';
import {
  ApiError,
  errorOf,
  InvalidAnswerError,
  jobOf,
  NoGatewayError,
  NotFoundError,
  TimeoutError,
  WaitTimeoutError,
} from './errors.js';
import { FIRST_PATIENCE, follow, type StreamOptions } from './events.js';
import { innerOf, keepInner } from './inner.js';
import { type Exported, type Format, type KeyedOptions, type Listed, split } from './methods.js';
import type { Pages } from './pages.js';
import {
  answered,
  type CallOptions,
  Deadline,
  isAway,
  known,
  Pace,
  parsed,
  type RequestLimits,
  type Retry,
  record,
} from './requests.js';
import { CALLS, type Resources, resources } from './resources.js';
import { VERSION } from './version.js';

declare module './api/client/types.gen.js' {
  // the limits of each call, beside its `path`, `query` and `body`
  interface Config<T extends ClientOptions = ClientOptions> extends Omit<RequestLimits, 'signal'> {}
}

/** How all requests of a client are sent. */
export interface DiscoveryBotOptions {
  /** From `discoverybot keys create`. A gateway without keys needs none. */
  key?: string | undefined;
  /** Who asks, on a gateway without keys; with the key of an admin, for whom. Each call that takes a `user_id` gets it,
   * unless it has one. */
  userId?: string | undefined;
  /** Further headers of each request, such as those for a proxy. */
  headers?: Record<string, string> | undefined;
  /** What sends requests; `globalThis.fetch` if it is left out. */
  fetch?: typeof fetch | undefined;
  /** Seconds for a call, however often it is sent (300). */
  timeout?: number | undefined;
  /** The most times that a request is sent again, if it may be sent twice (6). */
  retries?: number | undefined;
  /** Called before a request is sent again, for logs and metrics. What it throws ends the call. */
  onRetry?: ((retry: Retry) => void) | undefined;
}

/** How a crawl is asked for. */
export interface StartOptions extends KeyedOptions {}

/** A crawl that begins now and once. */
export type CrawlNow = Omit<api.CrawlRequest, 'interval' | 'schedule_at'>;

/** How a log is followed. */
export interface FollowOptions extends StreamOptions {
  /** Only lines of this level or higher. */
  level?: api.LogLevel | undefined;
}

type ItemsQuery = Listed<api.ListJobItemsData>;

/** Which items are listed, and for how long. */
export interface ItemsOptions extends ItemsQuery, CallOptions {}

/** Which items are saved, and for how long. */
export interface ExportOptions extends Exported<api.DownloadJobItemsData> {}

type ChangesQuery = Omit<NonNullable<api.ListDatasetChangesData['query']>, 'limit' | 'wait'>;

/** Which changes are followed, and for how long. */
export interface ChangesOptions extends ChangesQuery, Omit<StreamOptions, 'after'> {}

/** Whose dataset it is, and for how long its run is waited for. */
export interface RunOptions extends NonNullable<api.GetDatasetRunData['query']>, CallOptions {}

/** What an egg is deployed as, and what it needs. */
export interface DeployOptions extends CallOptions {
  project: string;
  version: string;
  /** The text of a requirements file, best of a lock: each node installs them for the project's crawls. */
  requirements?: string | undefined;
}

/** As what a job's items are saved. */
export type ItemsFormat = Format<api.DownloadJobItemsData>;

interface Events {
  log: api.LogLineData;
  status: api.StatusData;
  progress: api.ProgressView;
  /** Lines from one position to another are no longer kept. */
  gap: api.GapData;
  /** The job has ended; nothing comes after it. */
  end: api.JobStatusView | api.ScheduleStatusView;
  /** The connection broke. The stream goes on after the last event. */
  dropped: undefined;
}

/** An event of a job, by its `event`. With its `id` as `after`, `followJob` goes on behind it. */
export type JobEvent = { [Name in keyof Events]: { event: Name; id: string; data: Events[Name] } }[keyof Events];

/** States of a dataset's run of which nothing is decided yet. */
const UNDECIDED: readonly string[] = ['planned', 'paused'];
const ENDED: readonly api.JobStatus[] = ['finished', 'partial', 'error', 'cancelled'];
/** Seconds for which the gateway waits for a job's end at most, and seconds that its answer may take on top. */
const WAIT = 30;
const GRACE = 10;
/** Seconds that a deployment takes at most; and that the gateway waits for its nodes before it is asked again. */
const DEPLOYMENT = 3600;
const NODES = 50;
/** Limits of requests that are sent again until they are answered or a minute is over, unless the client or the call
 * has other limits. */
const PERSISTENT = { timeout: 60, retries: Number.POSITIVE_INFINITY, silence: WAIT };
/** The call that has these limits, beside those with an idempotency key. */
const CANCEL = 'POST /jobs/{job_id}/cancel';

/** What is answered with a 503 if the gateway is not well. */
const HEALTH = '/health';
const UNAVAILABLE = 503;

const DEFAULTS = { timeout: 300, retries: 6 };
/** Seconds without a byte after which a try is given up, and sent again if the request may be sent twice. */
const SILENCE = 120;
/** The same for calls whose answer begins only when a whole file was made. */
const LONG_SILENCE = 600;
/** The route that hands on Scrapyd's own pages. */
const PAGES = '/nodes/{node}/scrapyd/';
const METHODS = ['connect', 'delete', 'get', 'head', 'options', 'patch', 'post', 'put', 'trace'] as const;

type RequestOptions = Parameters<Client['request']>[0];

/** The calls of one gateway, for one key. An object of this class is also the `client` of all other functions of the
 * API: `listJobs({ client })`. Several may be used side by side, because they share nothing. */
export class DiscoveryBot {
  readonly #limits: CallOptions;

  /** `baseUrl` is the gateway's address, such as `https://crawls.example.com`; in a browser also a path. */
  constructor(baseUrl: string | URL, options: DiscoveryBotOptions = {}) {
    const { key, userId, headers, fetch: given, timeout, retries, onRetry } = options;
    this.#limits = known({ timeout, retries });
    const config = createConfig({
      baseUrl: address(baseUrl),
      headers: sound({ ...userAgent(), ...headers, ...(key && { Authorization: `Bearer ${key}` }) }),
      responseStyle: 'data',
      throwOnError: true,
    });
    const inner = createClient({ ...config, ...this.#limits, ...known({ onRetry }) });
    inner.interceptors.error.use((error, response, request) =>
      response ? errorOf(request, response, error) : error,
    );
    inner.interceptors.response.use((response, _, { url }) => {
      if (response.ok && isPage(response) && !url.startsWith(PAGES)) {
        response.body?.cancel().catch(() => {});
        const message = `the answer is a web page: there is no gateway at ${baseUrl}, or a login is before it`;
        throw new NoGatewayError(response.status, { error: { message } });
      }
      return asAnswer(response, url);
    });
    // async, so that what is wrong with a request rejects, as all else does
    const request = async (asked: RequestOptions) =>
      sent(inner, complete(asked, userId), given ?? globalThis.fetch);
    const methods = METHODS.map((method) => [
      method,
      (asked: RequestOptions) => request({ ...asked, method: method.toUpperCase() as RequestOptions['method'] }),
    ]);
    const sse = { ...inner.sse, get: async (asked: RequestOptions) => ({ stream: this.#data(asked) }) };
    keepInner(this, { ...inner, request, sse, ...Object.fromEntries(methods) });
    for (const [name, value] of Object.entries(resources(this))) Object.defineProperty(this, name, { value });
  }

  /** Asks for a crawl. If the answer is lost or the gateway is away, the request is sent again, for a minute if no
   * `timeout` says otherwise; because of its idempotency key there is one job. */
  async startCrawl(crawl: api.CrawlRequest, options: StartOptions = {}): Promise<api.CrawlReceipt> {
    return this.#started(crawl, options);
  }

  /** Asks for a crawl, and resolves to its job once it has ended, well or not: see `requireGood`. `timeout` is for the
   * whole call, as in `waitForJob`. `TypeError` for a crawl with `interval` or `schedule_at`: a schedule has no end. */
  async crawl(crawl: CrawlNow, { timeout, ...options }: StartOptions = {}): Promise<api.JobDetail> {
    const { interval, schedule_at }: Partial<api.CrawlRequest> = crawl;
    if (interval != null) throw new TypeError('interval: client.schedules.create makes a schedule');
    if (schedule_at != null) throw new TypeError('schedule_at: client.startCrawl asks for a crawl that begins later');
    const deadline = new Deadline(timeout);
    const { idempotencyKey, ...limits } = options;
    const first = deadline.isSet ? { deadline: deadline.within(PERSISTENT.timeout) } : {};
    const { job_id } = await this.#started(crawl, options, first);
    return this.#ended(job_id, deadline, limits);
  }

  /** The job once it has ended, well or not: see its `status`. `timeout` is for the whole call: after that comes a
   * `WaitTimeoutError`, and the crawl goes on. A gateway that is away is asked again. `NotAJobError` for the id of a
   * schedule. */
  async waitForJob(jobId: string, { timeout, ...options }: CallOptions = {}): Promise<api.JobDetail> {
    return this.#ended(jobId, new Deadline(timeout), options);
  }

  /** What a crawl has done to a dataset, once that is decided: its changes are `published`, or why there are none. That
   * is up to a few seconds after its job has ended, which is waited for, too: `WaitTimeoutError` after `timeout` seconds
   * (60). `TypeError` if the job's items do not go into this dataset. */
  async waitForRun(name: string, jobId: string, options: RunOptions = {}): Promise<api.DatasetRunView> {
    const { timeout = 60, ...rest } = options;
    const deadline = new Deadline(timeout);
    const [query, limits] = split(rest);
    const job = await this.#ended(jobId, deadline, limits);
    const { dataset } = job.spec;
    const fed = typeof dataset === 'object' ? dataset?.name : dataset;
    if (fed !== name) throw new TypeError(`the items of job ${jobId} go into ${fed ?? 'no dataset'}, not into ${name}`);
    const pace = new Pace(deadline, limits.signal);
    for (; deadline.left > 0; await pace.next(false)) {
      const asked = { client: this, path: { name, run: jobId }, query, ...limits, deadline };
      try {
        const run = await getDatasetRun(asked);
        if (!UNDECIDED.includes(run.state)) return run;
      } catch (error) {
        limits.signal?.throwIfAborted();
        // until its items are compared there is no such run
        if (!(error instanceof NotFoundError || error instanceof TimeoutError || isAway(error))) throw error;
      }
    }
    throw new WaitTimeoutError(`dataset ${name} has no run of job ${jobId} after ${deadline}`, job);
  }

  async #started(crawl: api.CrawlRequest, options: StartOptions, limits?: RequestLimits): Promise<api.CrawlReceipt> {
    const { idempotencyKey, ...own } = options;
    const headers = known({ 'Idempotency-Key': idempotencyKey });
    return createCrawl({ client: this, body: crawl, headers, ...own, ...limits });
  }

  async #ended(jobId: string, deadline: Deadline, options: CallOptions): Promise<api.JobDetail> {
    const late = (cause?: unknown) =>
      new WaitTimeoutError(`job ${jobId} has not ended within ${deadline}`, job, cause ? { cause } : {});
    const pace = new Pace(deadline, options.signal);
    let job: api.JobDetail | undefined;
    // the first request does not wait, so that a `WaitTimeoutError` has the job
    for (let wait = 0; deadline.left > 0; wait = Math.max(1, Math.min(WAIT, Math.floor(deadline.left / 1000)))) {
      const own = { ...PERSISTENT, ...this.#limits, ...known(options) };
      const limits = { ...own, deadline, silence: wait + GRACE };
      const before = job?.status;
      try {
        job = jobOf(await getJob({ client: this, path: { job_id: jobId }, query: { wait }, ...limits }));
      } catch (error) {
        options.signal?.throwIfAborted();
        const isLate = error instanceof TimeoutError || (deadline.isSet && isAway(error));
        throw isLate ? late(error) : error;
      }
      if (ENDED.includes(job.status)) return job;
      await pace.next(job.status !== before);
    }
    throw late();
  }

  /** Each event of a job (or of a schedule's run) from the first one to the end: none is missing and none comes twice,
   * however often the connection breaks. */
  followJob(jobId: string, { level, ...options }: FollowOptions = {}): AsyncGenerator<JobEvent, void> {
    const request = { url: '/jobs/{job_id}/logs', path: { job_id: jobId }, query: { level } };
    return follow(innerOf(this), request, options) as AsyncGenerator<JobEvent, void>;
  }

  /** Each change of a dataset after `since`, then each further change: the loop does not end. To go on later, use the
   * `seq` of the last change as `since`. Waits for a gateway that is away, for `patience` seconds after it was lost; without
   * `patience` for ever, and for a minute if it has never answered. */
  async *followChanges(name: string, options: ChangesOptions = {}): AsyncGenerator<api.ChangeView, void> {
    const { patience, timeout, signal, ...query } = options;
    const deadline = new Deadline(timeout);
    const pace = new Pace(deadline, signal);
    const told = innerOf(this).getConfig().onRetry;
    let longest = patience ?? FIRST_PATIENCE;
    for (let { since } = query; ; deadline.check()) {
      let lost: number | undefined;
      const onRetry = (retry: Retry) => {
        lost ??= performance.now();
        if (performance.now() - lost >= 1000 * longest) throw retry.error;
        told?.(retry);
      };
      const limits = { retries: Number.POSITIVE_INFINITY, deadline, silence: WAIT + GRACE, signal, onRetry };
      const asked = { ...query, since, wait: WAIT, limit: 1000 };
      const page = await listDatasetChanges({ client: this, path: { name }, query: asked, ...limits });
      longest = patience ?? Number.POSITIVE_INFINITY;
      const before = since;
      if (page.changes.length && page.next === before)
        throw new InvalidAnswerError(`the changes after ${before} lead to themselves`);
      yield* page.changes;
      since = page.next;
      await pace.next(since !== before);
    }
  }

  /** Each item of a job, page by page; of a job that still runs, the items so far. A page whose answer breaks off is
   * requested again. The items may have a type of yours: `jobItems<{ url: string }>(id)`. */
  jobItems<Item = Record<string, unknown>>(jobId: string, options: ItemsOptions = {}): Pages<Item> {
    const [query, limits] = split(options);
    return this.jobs.items<Item>(jobId, query, limits);
  }

  /** All items of a job as a file, byte by byte: `csv`, `jsonl`, `xlsx`, `parquet` or `json`. */
  async exportItems(
    jobId: string,
    format: ItemsFormat,
    options: ExportOptions = {},
  ): Promise<ReadableStream<Uint8Array>> {
    return this.jobs.exportItems(jobId, format, options);
  }

  /** Deploys an egg to every node, and resolves once they have installed what it needs: `timeout` is for the whole call
   * (3600). `discoverybot deploy --build` makes the egg of a project's folder. */
  async deploy(egg: Blob, options: DeployOptions): Promise<api.DeployedView> {
    const { project, version, requirements, timeout = DEPLOYMENT, ...rest } = options;
    const deadline = new Deadline(timeout);
    const limits = { ...rest, deadline };
    const body = { egg, ...known({ requirements }) };
    const asked = { path: { project }, query: { version, wait: NODES }, silence: LONG_SILENCE, repeatable: true };
    const pace = new Pace(deadline, rest.signal);
    for (;;) {
      const told = await deployVersion({ client: this, body, ...asked, ...limits });
      if (!('dependencies_url' in told)) return told;
      // the gateway stores the egg once nodes have installed what it needs: it is sent again then
      do {
        await pace.next(false);
        deadline.check();
      } while (await this.#isInstalling(project, version, limits));
    }
  }

  /** Whether a node installs what a version needs. The gateway may not know it, such as after a node's restart. */
  async #isInstalling(project: string, version: string, limits: RequestLimits): Promise<boolean> {
    try {
      const { nodes } = await getVersionDependencies({ client: this, path: { project, version }, ...limits });
      return nodes.some(({ state }) => state === 'building');
    } catch (error) {
      if (error instanceof ApiError) return false;
      throw error;
    }
  }

  /** Cancels a job, or a schedule by its id. A running job ends within seconds. A job that has ended otherwise is an
   * `ApiError` (409). The request is sent again as in `startCrawl`. */
  async cancel(jobId: string, options: CallOptions = {}): Promise<api.JobStatusView | api.ScheduleStatusView> {
    return this.jobs.cancel(jobId, options);
  }

  async *#data(asked: RequestOptions): AsyncGenerator<unknown, void> {
    const { url, path, query, signal } = asked;
    for await (const { event, data } of follow(innerOf(this), { url, path, query }, { signal })) {
      if (event !== 'dropped') yield data;
    }
  }
}

// the constructor defines all of these methods
export interface DiscoveryBot extends Resources {}

/** The address of a gateway. What is none would be taken for a gateway that is away. A password in it is not repeated:
 * messages are logged. */
function address(given: string | URL): string {
  const base = globalThis.location?.href;
  const url = URL.canParse(given, base) ? new URL(given, base) : undefined;
  if (url?.username || url?.password) throw new TypeError('baseUrl: no name or password can be in it; send `headers`');
  if (!url || !['http:', 'https:'].includes(url.protocol) || url.search || url.hash)
    throw new TypeError(`baseUrl: ${given} is not the address of a gateway, such as https://crawls.example.com`);
  return String(given);
}

/** Headers that can be sent. `fetch` would say their values, which may be secret. */
function sound(headers: Record<string, string>): Record<string, string> {
  for (const [name, value] of Object.entries(headers)) {
    try {
      new Headers({ [name]: value });
    } catch {
      const what = name === 'Authorization' ? 'key' : `headers: ${name}`;
      throw new TypeError(`${what}: it has characters that no header has`);
    }
  }
  return headers;
}

/** Which program asks, for the gateway's log. Browsers say it themselves, and some ask the gateway for leave before
 * they send another one. */
function userAgent(): Record<string, string> {
  const { userAgent: runtime = '' } = globalThis.navigator ?? {};
  if (runtime.startsWith('Mozilla/')) return {};
  return { 'User-Agent': `discoverybot-client/${VERSION} (TypeScript) ${runtime}`.trimEnd() };
}

/** The request with what its call takes and was not given: the user, and an idempotency key. */
function complete(asked: RequestOptions, userId: string | undefined): RequestOptions {
  const { user, again } = CALLS[`${asked.method} ${asked.url}`] ?? {};
  const { query, body, headers } = asked;
  const request = { ...asked, path: segments(asked.url, asked.path) };
  const named = userId === undefined ? {} : { user_id: userId };
  if (user === 'query') request.query = { ...named, ...query };
  if (user === 'body') request.body = { ...named, ...(body as object) };
  if (user === 'filter') {
    const { filter, ...rest } = body as api.BulkRequest;
    request.body = { ...rest, filter: { ...named, ...filter } };
  }
  if (again === 'key') request.headers = { 'Idempotency-Key': newKey(), ...(headers as Record<string, string>) };
  return again ? { repeatable: true, ...request } : request;
}

/** The ids and names of a path, each of which is one part of it. One that leads elsewhere is refused. */
function segments(url: string, path: Record<string, unknown> = {}): Record<string, unknown> {
  for (const [, name = ''] of url.matchAll(/\{(\w+)\}/g)) {
    const id = path[name];
    const isName = (typeof id === 'string' || typeof id === 'number') && !['', '.', '..'].includes(String(id));
    if (!isName) throw new TypeError(`${name}: ${JSON.stringify(id)} is no id or name`);
  }
  return path;
}

/** Sends a request until it is answered, or may not be sent again. */
async function sent(inner: Client, asked: RequestOptions, send: typeof fetch): Promise<unknown> {
  const name = `${asked.method} ${asked.url}`;
  const { again, has, rows, reads } = CALLS[name] ?? {};
  const isPersistent = name === CANCEL || again === 'key';
  const own = known(asked);
  const limits = { ...DEFAULTS, ...(isPersistent && PERSISTENT), ...inner.getConfig(), ...own };
  const { query, retries, fetch = send } = limits;
  const parseAs = own.parseAs ?? reads ?? 'auto';
  // it is read for as long as it goes on
  const timeout = own.timeout ?? (parseAs === 'stream' ? Number.POSITIVE_INFINITY : limits.timeout);
  const silence = limits.silence ?? (reads === 'blob' ? LONG_SILENCE : SILENCE) + Number(query?.wait ?? 0);
  // no call of the API is answered elsewhere: a redirect leads to a login, or away from a wrong address
  const redirect = asked.url.startsWith(PAGES) ? 'follow' : 'manual';
  const answer = await answered<unknown>(
    (attempt) => inner.request({ redirect, ...asked, parseAs, signal: attempt.signal, fetch: attempt.fetch }),
    fetch,
    { ...limits, timeout, retries, silence },
  );
  // what is read in another way than the API's description says is for who asks so
  return has && !own.parseAs ? record(answer, name, has, rows) : answer;
}

/** A 503 that says how the gateway is, as an answer: that it is down is what was asked for. */
async function asAnswer(response: Response, url: string): Promise<Response> {
  if (url !== HEALTH || response.status !== UNAVAILABLE) return response;
  const text = await response.text();
  const { headers } = response;
  return new Response(text, { headers, status: isHealth(text) ? 200 : UNAVAILABLE });
}

/** Whether it is a gateway's; a proxy's 503 is none. */
function isHealth(text: string): boolean {
  try {
    return typeof Object(parsed(text)).status === 'string';
  } catch {
    return false;
  }
}

/** Whether it is a page for people. A page that a crawl has saved is an attachment. */
function isPage({ headers }: Response): boolean {
  return Boolean(headers.get('Content-Type')?.startsWith('text/html')) && !headers.has('Content-Disposition');
}

/** Not `randomUUID`, which browsers have only in pages over https. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
