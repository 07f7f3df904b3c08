/** Makes methods of calls, grouped by what they are about: `client.jobs.list({ status: ['error'] })`. `resources.mjs`
 * writes the methods themselves, from the API's description. */

import type { DiscoveryBot } from './client.js';
import { jobOf } from './errors.js';
import { type List, type Page, type Pages, pages } from './pages.js';
import { type CallOptions, known } from './requests.js';

/** Options of a call that is carried out once, however often it is sent. */
export interface KeyedOptions extends CallOptions {
  /** By this key the gateway knows a request that is sent again. If it is left out, one is made. Requests of several
   * processes with the same key are carried out once. */
  idempotencyKey?: string | undefined;
}

/** How much of a list is read. */
export interface ListLimits {
  /** How many rows come at most; all if it is left out. */
  limit?: number | undefined;
}

/** How much of a list that has pages is read. */
export interface PageLimits extends ListLimits {
  /** How many are asked for at a time; as many as the gateway gives, if it is left out. */
  pageSize?: number | undefined;
}

/** What a list takes: the filters of the call, and how much of it is read. */
export type Listed<Data extends { query?: object }, Limits = PageLimits> = Omit<
  NonNullable<Data['query']>,
  'after' | 'limit'
> &
  Limits;

/** As what something is saved. */
export type Format<Data extends { query?: { format?: unknown } }> = NonNullable<NonNullable<Data['query']>['format']>;

/** What a file takes: which rows and columns it has, and the limits of its call. */
export type Exported<Data extends { query?: object }> = Omit<NonNullable<Data['query']>, 'format'> & CallOptions;

// the methods that `resources.mjs` writes have the types
type Call = (options: any) => Promise<unknown>;
type Given = readonly any[];

type Part = 'query' | 'body';

/** The request of a call, from the arguments of its method: the ids in the path, then the `parts`, then limits. */
function requestOf(client: DiscoveryBot, given: Given, ids: readonly string[], ...parts: Part[]): object {
  const values = [...given];
  const path = Object.fromEntries(ids.map((name) => [name, values.shift()]));
  const sent = Object.fromEntries(parts.map((part) => [part, values.shift()]));
  const { idempotencyKey, ...limits }: KeyedOptions = values[0] ?? {};
  const headers = idempotencyKey === undefined ? {} : { headers: { 'Idempotency-Key': idempotencyKey } };
  return { client, path, ...sent, ...headers, ...known(limits) };
}

/** What goes into the query, and what does not. */
export function split<Asked extends CallOptions>(asked: Asked): [Omit<Asked, keyof CallOptions>, CallOptions] {
  const { timeout, retries, signal, ...query } = asked;
  return [query, known({ timeout, retries, signal })];
}

/** As many rows as are wanted, in pages of `most` at most if the call can have it in pages. */
async function* rows(call: List, list: string, most: number | undefined, request: any): Pages<any> {
  const { limit, pageSize, ...query } = request.query ?? {};
  let left: number = limit ?? Number.POSITIVE_INFINITY;
  if (left <= 0) return;
  const size = most && { limit: Math.min(left, pageSize ?? most) };
  for await (const page of pages(call, { ...request, query: { ...query, ...size } })) {
    for (const row of (page as Page & Record<string, unknown[]>)[list] ?? []) {
      yield row;
      if (--left <= 0) return;
    }
  }
}

/** Functions that make methods of a client's calls. */
export function methodsOf(client: DiscoveryBot) {
  const method =
    (...parts: Part[]) =>
    (call: Call, ...ids: string[]) =>
    // `async`, so that a call that fails before it is sent rejects, too
    async (...given: Given): Promise<any> =>
      call(requestOf(client, given, ids, ...parts));
  const asksJob =
    (call: Call, ...ids: string[]) =>
    async (...given: Given): Promise<any> =>
      jobOf(await method('query')(call, ...ids)(...given));
  const lists =
    (call: Call, list: string, most: number | undefined, ...ids: string[]) =>
    (...given: Given): Pages<any> =>
      rows(call as List, list, most, requestOf(client, given, ids, 'query'));
  const saves =
    (call: Call, hasFormat: boolean, ...ids: string[]) =>
    async (...given: Given): Promise<any> => {
      const named = given.slice(0, ids.length);
      const [format, options = {}] = hasFormat ? given.slice(ids.length) : [undefined, given[ids.length]];
      const [query, limits] = split(options);
      const request = requestOf(client, [...named, { ...query, format }, limits], ids, 'query');
      return call({ ...request, parseAs: 'stream' });
    };
  const [does, asks, sends, both] = [method(), method('query'), method('body'), method('body', 'query')];
  return { does, asks, asksJob, sends, both, lists, saves };
}
