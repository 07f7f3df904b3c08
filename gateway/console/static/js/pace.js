// Does something again and again, but no more often than people can see.

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
   * Act soon: now, or `apart` milliseconds after the last time.
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
