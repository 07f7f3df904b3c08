// The records of a route, a page at a time.

/**
 * @typedef {Record<string, unknown>} Values of one record
 * @typedef {{ records: Values[], next: string | null, searched: number }} Page
 */

/** The cursors of all pages that were read are kept, so one can go back. */
export class Pages {
  /** @type {(string | undefined)[]} */
  #cursors = [undefined];
  /** How many records are before each page. */
  #firsts = [0];
  #read;
  /** How many records the pages that were asked for have looked through, where the route searches. */
  searched = 0;

  /** @param {(after: string | undefined) => Page | Promise<Page>} read */
  constructor(read) {
    this.#read = read;
  }

  /**
   * Whether there is a page of this number, as far as is known.
   *
   * @param {number} number
   */
  has(number) {
    return number in this.#cursors;
  }

  /**
   * How many records are before a page.
   *
   * @param {number} number
   */
  first(number) {
    return this.#firsts[number] ?? 0;
  }

  /**
   * The records of a page. A search's page may have none, and still be followed by others: then it is null, and is
   * read on by the next call.
   *
   * @param {number} number
   */
  async load(number) {
    const answer = await this.#read(this.#cursors[number]);
    if (!this.has(number + 1)) this.searched += answer.searched;
    if (!answer.records.length && answer.next) {
      this.#cursors[number] = answer.next;
      return null;
    }
    // a search that was not at its end has found nothing more
    if (!answer.records.length && number) delete this.#cursors[number];
    if (answer.next) {
      this.#cursors[number + 1] = answer.next;
      this.#firsts[number + 1] = this.first(number) + answer.records.length;
    }
    return answer.records;
  }
}
