/** All of the gateway's API, generated from its description (`api/`), and a log that is followed to its end. */

import { client } from './api/client.gen.js';
import { listJobItems } from './api/sdk.gen.js';
import type * as api from './api/types.gen.js';

export * from './api/sdk.gen.js';
export type * from './api/types.gen.js';
export { client };

/** What the gateway refuses. Programs go by `code`, such as `job_not_found`; `message` is for people. */
export class GatewayError extends Error {
  readonly code: string;
  readonly detail: unknown;

  constructor(
    readonly status: number,
    problem: unknown,
  ) {
    const { error } = (problem ?? {}) as Partial<api.Problem>;
    super(error?.message ?? `the answer is ${status}`);
    this.name = 'GatewayError';
    this.code = error?.code ?? 'http_error';
    this.detail = error?.detail;
  }
}

client.interceptors.error.use((error, response) => (response ? new GatewayError(response.status, error) : error));

/** Which gateway all calls go to. Nothing but a gateway without keys needs no `key`. */
export function connect(baseUrl: string, key?: string): void {
  client.setConfig({ baseUrl, headers: { Authorization: key ? `Bearer ${key}` : null } });
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
}

/** Answers of a gateway, or of a proxy, that is back some time. */
const AWAY = [429, 502, 503, 504];
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
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/** 204: there is nothing left to see. */
const OVER = new Error();

type Frame = Partial<Record<string, string>>;

async function* connection(jobId: string, id: string, { level, signal }: FollowOptions): AsyncGenerator<Frame, void> {
  const silent = new AbortController();
  const listen = () => setTimeout(() => silent.abort(new Error('the gateway is silent')), SILENCE);
  let timer = listen();
  try {
    const { data, response } = await client.get<{ 200: ReadableStream<BufferSource> }, unknown, true>({
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

/** Each item of a job, page by page; of one that goes on, those that there are. */
export async function* jobItems(
  jobId: string,
  query: Omit<NonNullable<api.ListJobItemsData['query']>, 'after' | 'format'> = {},
): AsyncGenerator<api.ItemsPage['items'][number], void> {
  for (let after: string | null | undefined; after !== null; ) {
    const { data } = await listJobItems({ path: { job_id: jobId }, query: { limit: 1000, ...query, after } });
    yield* data.items;
    after = data.next;
  }
}
