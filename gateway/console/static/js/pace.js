// Something is done again and again, but not more often than anybody sees.

export class Pace {
  #act;
  #done = 0;
  /** @type {number | undefined} */
  #timer;

  /** @param {() => void} act */
  constructor(act) {
    this.#act = act;
  }

  /**
   * Do it soon: now, or so many milliseconds after the last time.
   *
   * @param {number} apart
   */
  soon(apart) {
    const quiet = performance.now() - this.#done;
    this.#timer ??= setTimeout(
      () => {
        this.#timer = undefined;
        this.#done = performance.now();
        this.#act();
      },
      Math.max(0, apart - quiet),
    );
  }
}
