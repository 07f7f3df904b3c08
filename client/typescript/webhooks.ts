/** Calls of webhooks and endpoints, signed according to Standard Webhooks (https://www.standardwebhooks.com). */

import type { Webhooks } from './api/types.gen.js';
import { WebhookError } from './errors.js';

type Told<Call> = Call extends { key: infer Type; body: { data: infer Data } }
  ? { type: Type; timestamp: string; data: Data }
  : never;

/** The body of a call, by its `type`, such as `job.failed`. Later releases may have more types. `timestamp` is when the
 * event happened, or was found. */
export type WebhookEvent = Told<Webhooks>;

/** A `Headers`, or the `request.headers` of Node.js. */
export type WebhookHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

export interface VerifyOptions {
  /** Seconds that a call may be old, or the clocks may differ (300). */
  tolerance?: number | undefined;
  /** The time in milliseconds since 1970; the clock's if it is left out. */
  now?: number | undefined;
}

const PREFIX = 'whsec_';
/** The fewest bytes of a secret, because a shorter one can be guessed. */
const LEAST = 16;

/** The event of a signed call. `body` is the body as it came, not parsed and written again. A call may come twice, with
 * the same `webhook-id`. Throws `WebhookError` if the call was not signed with the secret, or is older than `tolerance`
 * seconds. */
export async function verify<Event extends object = WebhookEvent>(
  headers: WebhookHeaders,
  body: string | Uint8Array | ArrayBuffer,
  secret: string,
  { tolerance = 300, now = Date.now() }: VerifyOptions = {},
): Promise<Event> {
  const [id, sent, signatures] = ['id', 'timestamp', 'signature'].map((name) => header(headers, `webhook-${name}`));
  if (!id || !sent || !signatures || !/^\d+$/.test(sent))
    throw new WebhookError('the call has no webhook-id, webhook-timestamp and webhook-signature');
  if (!(Math.abs(now / 1000 - Number(sent)) <= tolerance))
    throw new WebhookError(`the call is of another time: ${sent}`);
  const text = typeof body === 'string' ? body : new TextDecoder('utf-8', { ignoreBOM: true }).decode(body);
  const raw = typeof body === 'string' ? new TextEncoder().encode(body) : new Uint8Array(body);
  const signed = joined(new TextEncoder().encode(`${id}.${sent}.`), raw);
  const key = await crypto.subtle.importKey('raw', keyOf(secret), { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
  // a sender whose secret was just renewed signs with both
  for (const one of signatures.split(' ')) {
    const signature = one.startsWith('v1,') ? bytes(one.slice(3)) : undefined;
    if (signature && (await crypto.subtle.verify('HMAC', key, signature, signed))) return read<Event>(text);
  }
  throw new WebhookError('the signature is not that of this secret and this body');
}

function read<Event extends object>(text: string): Event {
  try {
    const event: unknown = JSON.parse(text);
    if (typeof event === 'object' && event && !Array.isArray(event)) return event as Event;
  } catch {
    // the body is no JSON
  }
  throw new WebhookError('the body is no object');
}

function header(headers: WebhookHeaders, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  const found = Object.entries(headers).find(([one]) => one.toLowerCase() === name)?.[1];
  return typeof found === 'string' ? found : found?.[0];
}

function keyOf(secret: string): Uint8Array<ArrayBuffer> {
  const key = bytes(secret.startsWith(PREFIX) ? secret.slice(PREFIX.length) : secret);
  if (key && key.length >= LEAST) return key;
  throw new TypeError('the secret is not as the gateway has told it: whsec_ and base64');
}

function bytes(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}
