/** Lists that are longer than a page. */

import { InvalidAnswerError } from './errors.js';
import { Deadline } from './requests.js';

/** A page of a list. `next` is where the following page begins. */
export interface Page {
  next?: string | number | null;
}

/** A list: a loop over it has each row, page after page. */
export interface Pages<Row> extends AsyncGenerator<Row, void> {}

/** A function of this package that lists something. */
// `any`, because each of them takes other options; `Parameters` has their type
export type List = (options: any) => Promise<Page | undefined>;

/** The answer of such a function. */
export type PageOf<L extends List> = NonNullable<Awaited<ReturnType<L>>>;

/** The names of a page's arrays. */
type Lists<P> = { [Name in keyof P]-?: P[Name] extends readonly unknown[] ? Name : never }[keyof P];
type IsOne<T, All = T> = [T] extends [never] ? false : T extends unknown ? ([All] extends [T] ? true : false) : never;

/** The type of a row, if the page has exactly one array; otherwise `never`. */
export type Row<P> = IsOne<Lists<P>> extends true ? (P[Lists<P>] extends readonly (infer R)[] ? R : never) : never;

/** Each page of a list, one after the other: `pages(listJobs, { client, query: { status: ['error'] } })`. `list` is any
 * function of this package whose answer has `next`. `timeout` is for all pages together.
 *
 * `by` is the name of the parameter that takes `next`. It is known for all functions of this package: `from` for logs,
 * `since` for the changes of a dataset, otherwise `after`. */
export async function* pages<L extends List>(
  list: L,
  options: Parameters<L>[0],
  by?: string,
): AsyncGenerator<PageOf<L>, void> {
  const { timeout, ...rest }: { timeout?: number; query?: object } = options;
  const deadline = new Deadline(timeout);
  let { query } = rest;
  let before: Page['next'];
  for (;;) {
    deadline.check();
    const limits = timeout === undefined ? {} : { deadline };
    const page = (await list({ ...rest, ...limits, query })) as PageOf<L>;
    yield page;
    const { next } = page;
    // the feed of changes has no end: each page has `next`, and `pending` says whether there is more now
    const isLast = typeof next === 'number' ? !(page as { pending?: number }).pending : next == null;
    if (isLast) return;
    if (next === before) throw new InvalidAnswerError(`the page after ${next} is the same again`);
    before = next;
    query = { ...query, [by ?? parameterOf(page)]: next };
  }
}

function parameterOf(page: Page): string {
  if (typeof page.next === 'number') return 'since';
  return 'lines' in page || 'segments' in page ? 'from' : 'after';
}

/** Each row of a list, page by page: `each(listJobs, { client })` gives jobs. Use `pages` if a page has more than one
 * array. */
export async function* each<L extends List>(
  list: L,
  options: Parameters<L>[0],
  by?: string,
): AsyncGenerator<Row<PageOf<L>>, void> {
  for await (const page of pages(list, options, by)) {
    const [rows = []] = Object.values(page).filter((value) => Array.isArray(value));
    yield* rows as Row<PageOf<L>>[];
  }
}
