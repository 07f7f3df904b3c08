/** Makes methods of calls, grouped by what they are about: `client.jobs.list({ status: ['error'] })`. `resources.mjs`
 * writes the methods themselves, from the API's description. */

import type { Client } from './api/client/index.js';
import { each, type List, type PageOf, type Row } from './pages.js';
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
  /** How many rows are requested at a time; as many as the gateway gives if it is left out. */
  pageSize?: number | undefined;
}

/** Options of a list: the filters of its call, and how much of it is read. */
export type Listed<Data extends { query?: object }> = Omit<NonNullable<Data['query']>, 'after' | 'limit'> & ListLimits;

// without types here, because the methods that `resources.mjs` writes have them
type Call = (options: any) => Promise<unknown>;
type Given = readonly any[];

type Part = 'query' | 'body';

/** The request of a call, from the arguments of its method: the ids in the path, then the `parts`, then limits. */
function requestOf(client: Client, given: Given, ids: readonly string[], ...parts: Part[]): object {
  const values = [...given];
  const path = Object.fromEntries(ids.map((name) => [name, values.shift()]));
  const sent = Object.fromEntries(parts.map((part) => [part, values.shift()]));
  const { idempotencyKey, ...limits }: KeyedOptions = values[0] ?? {};
  const headers = idempotencyKey === undefined ? {} : { headers: { 'Idempotency-Key': idempotencyKey } };
  return { client, path, ...sent, ...headers, ...known(limits) };
}

/** The rows of a list up to its `limit`, read in pages of `most` rows at most. */
async function* rows<L extends List>(call: L, request: any, most: number): AsyncGenerator<Row<PageOf<L>>, void> {
  const { limit, pageSize, ...query } = request.query ?? {};
  let left: number = limit ?? Number.POSITIVE_INFINITY;
  if (left <= 0) return;
  for await (const row of each(call, { ...request, query: { ...query, limit: Math.min(left, pageSize ?? most) } })) {
    yield row;
    if (--left <= 0) return;
  }
}

/** Functions that make methods of a client's calls. */
export function methodsOf(client: Client) {
  const method =
    (...parts: Part[]) =>
    (call: Call, ...ids: string[]) =>
    // `async`, so that a call that fails before it is sent rejects, too
    async (...given: Given): Promise<any> =>
      call(requestOf(client, given, ids, ...parts));
  const lists =
    (call: Call, most: number, ...ids: string[]) =>
    (...given: Given): AsyncGenerator<any, void> =>
      rows(call as List, requestOf(client, given, ids, 'query'), most);
  return { does: method(), asks: method('query'), sends: method('body'), both: method('body', 'query'), lists };
}
