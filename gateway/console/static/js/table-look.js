// Keeps a growing table up to date: from time to time it asks whether there are new records.

/** Share of the time that checks may take: each may read a long record as a whole. */
const LOOKING = 0.1;
/** Seconds between two checks. */
const LOOK = 3;

export class TableLook {
  #table;
  #look;
  #isLooking = false;
  #notBefore = 0;
  /** @type {number | undefined} */
  #timer;

  /**
   * @param {HTMLElement} table its attribute `live` says how often; "last": once more
   * @param {() => Promise<boolean>} look resolves to whether it has looked
   */
  constructor(table, look) {
    this.#table = table;
    this.#look = look;
  }

  begin() {
    this.#timer = setInterval(() => this.#again(), 1000 * (Number(this.#table.getAttribute("live")) || LOOK));
  }

  end() {
    clearInterval(this.#timer);
  }

  async #again() {
    const isBusy = this.#isLooking || performance.now() < this.#notBefore;
    if (!this.#table.hasAttribute("live") || document.hidden || isBusy) return;
    const began = performance.now();
    this.#isLooking = true;
    const isRead = await this.#look().catch(() => false);
    this.#isLooking = false;
    this.#notBefore = performance.now() + (performance.now() - began) / LOOKING;
    if (isRead && this.#table.getAttribute("live") === "last") this.#table.removeAttribute("live");
  }
}

/**
 * Whether somebody is at a part of the page: with the pointer, the focus, the scroll bar or a selection.
 *
 * @param {HTMLElement} part
 */
export function isUsed(part) {
  const marked = getSelection();
  const isMarked = marked !== null && !marked.isCollapsed && part.contains(marked.anchorNode);
  return isMarked || part.matches(":hover") || part.contains(document.activeElement) || part.scrollTop > 0;
}
