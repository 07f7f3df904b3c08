// A gateway that answers what a test says: one function after the other, the last one again and again.
import { DiscoveryBot } from 'discoverybot-client';

/** Milliseconds of the pauses between requests: they are noted, and over at once. Limits of requests are longer. */
export const pauses = [];
const later = globalThis.setTimeout;
const LONGEST_PAUSE = 90_000;

globalThis.setTimeout = (act, time, ...given) => {
  if (time > LONGEST_PAUSE) return later(act, time, ...given);
  pauses.push(time);
  return later(act, 0, ...given);
};

export const json = (value, status = 200, headers = {}) => () =>
  new Response(JSON.stringify(value), { status, headers: { 'Content-Type': 'application/json', ...headers } });

export const refused = (status, code, headers = {}) => json({ error: { code, message: 'no', detail: { field: 'depth' } }, request_id: 'r1' }, status, headers);

/** What `fetch` does without a connection. */
export const away = () => {
  throw new TypeError('fetch failed');
};

/** The same where no connection was made, as Node.js says it. */
export const closed = () => {
  throw new TypeError('fetch failed', { cause: Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }) });
};

/** The beginning of an answer, which breaks off, or goes on for ever. */
export const begun = (text, { breaks = true, type = 'application/json' } = {}) => () => {
  const body = new ReadableStream({
    start: (controller) => controller.enqueue(new TextEncoder().encode(text)),
    pull: (controller) => (breaks ? controller.error(new TypeError('terminated')) : new Promise(() => {})),
  });
  return new Response(body, { headers: { 'Content-Type': type } });
};

/** A stream of events that ends in an orderly way. */
export const events = (text) => () => new Response(text, { headers: { 'Content-Type': 'text/event-stream' } });

/** A client, and what was asked. */
export function gateway(answers, options = {}) {
  const asked = [];
  pauses.length = 0;
  const fetch = async (request) => {
    asked.push(request);
    const answer = answers[Math.min(asked.length, answers.length) - 1];
    return answer(request);
  };
  return { client: new DiscoveryBot('http://gateway', { fetch, ...options }), asked };
}

/** A `fetch` that does not answer before it is no longer wanted. */
export const never = ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
