/** Streams of events. When a connection breaks, they connect again and continue after the last event that came. */

import type { Client } from './api/client/index.js';
import { ApiError, NoGatewayError } from './errors.js';
import { Deadline, isAway, parsed, passed } from './requests.js';

/** The request of a stream. */
export interface StreamRequest {
  url: string;
  path?: Record<string, unknown>;
  query?: Record<string, unknown>;
}

/** How long a stream is followed. */
export interface StreamOptions {
  /** The id of the last known event: the stream goes on after it. */
  after?: string | undefined;
  /** Seconds without a gateway after which there is an error. If it is left out, the stream waits for ever for a
   * gateway that has answered before, and a minute for one that has not. */
  patience?: number | undefined;
  /** Seconds for the whole stream, from the first event to the last: after that there is a `TimeoutError`. */
  timeout?: number | undefined;
  /** Ends the stream. The error is the signal's `reason`. */
  signal?: AbortSignal | null | undefined;
}

/** `event` is `dropped` when the connection broke. */
export interface StreamEvent {
  event: string;
  id: string;
  data: unknown;
}

/** Milliseconds before a connection is made anew, unless the gateway says otherwise. */
const PAUSE = 2000;
/** The shortest that it may want. */
const LEAST = 250;
/** Seconds without a word after which a connection is dead: the gateway sends a comment every 15 s. */
const SILENCE = 45;
/** Seconds for which a stream waits for a gateway that has never answered. */
export const FIRST_PATIENCE = 60;
const EVENT_STREAM = 'text/event-stream';
/** 204: there is nothing left to see. */
const NO_CONTENT = 204;

/** Each event up to `end`: none is missing and none comes twice, however often the connection breaks. */
export async function* follow(
  client: Client,
  request: StreamRequest,
  { after = '', patience, timeout, signal }: StreamOptions = {},
): AsyncGenerator<StreamEvent, void> {
  const deadline = new Deadline(timeout);
  let id = after;
  let pause = PAUSE;
  let heard = performance.now();
  let wasThere = false;
  for (;;) {
    try {
      const body = await opened(client, request, { id, deadline, signal });
      if (!body) return;
      wasThere = true;
      for await (const frame of frames(body)) {
        heard = performance.now();
        id = frame.id ?? id;
        if (frame.retry && /^\d+$/.test(frame.retry)) pause = Math.max(LEAST, Number(frame.retry));
        if (frame.data) yield { event: frame.event ?? 'message', id, data: parsed(frame.data) };
        if (frame.event === 'end') return;
        heard = performance.now(); // the reader may have taken its time
        deadline.check();
      }
    } catch (error) {
      signal?.throwIfAborted();
      const longest = patience ?? (wasThere ? Number.POSITIVE_INFINITY : FIRST_PATIENCE);
      if (!isAway(error) || performance.now() - heard > 1000 * longest) throw error;
      // a gateway may ask for a longer pause than `patience`
      if (error instanceof ApiError && error.retryAfter) pause = Math.max(pause, 1000 * error.retryAfter);
    }
    yield { event: 'dropped', id, data: undefined };
    await passed(Math.min(pause, deadline.left), signal);
    deadline.check();
  }
}

interface Connection {
  id: string;
  deadline: Deadline;
  signal: AbortSignal | null | undefined;
}

/** The body of a stream that begins after the event `id`; `undefined` if there is nothing left to see. */
async function opened(
  client: Client,
  request: StreamRequest,
  { id, ...limits }: Connection,
): Promise<ReadableStream<BufferSource> | undefined> {
  const { data, response } = await client.get<{ 200: ReadableStream<BufferSource> }, unknown, true, 'fields'>({
    ...request,
    ...limits,
    retries: 0,
    silence: SILENCE,
    headers: { Accept: EVENT_STREAM, 'Last-Event-ID': id || null },
    parseAs: 'stream',
    responseStyle: 'fields',
    throwOnError: true,
    cache: 'no-store',
  });
  if (response.status === NO_CONTENT) return undefined;
  const type = response.headers.get('Content-Type') ?? 'no type';
  if (type.startsWith(EVENT_STREAM)) return data;
  data.cancel().catch(() => {}); // the connection may have failed
  const where = client.getConfig().baseUrl;
  const message = `the answer is ${type} and no stream of events: it does not come from the gateway at ${where}`;
  throw new NoGatewayError(response.status, { error: { message } });
}

type Frame = Partial<Record<string, string>>;

async function* frames(body: ReadableStream<BufferSource>): AsyncGenerator<Frame, void> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    let frame: Frame = {};
    let text = '';
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
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
    reader.cancel().catch(() => {}); // the stream may have failed
  }
}
