// A list of any length of which only the rows in sight exist. Rows may have any height.
//
// The position is the first visible row, and how much of it is above the edge. The scroll bar follows that:
// browsers cannot scroll through more than some million pixels, so its place is a share, not a distance.
import { barOf, rowAt, windowOf } from "./rows-window.js";

/** Pixels of a row before any was measured, and the least pixels of a row. */
const ROW = 20;
/** Milliseconds without scrolling after which the scroll bar is put where it belongs. */
const SETTLED = 150;

/** @typedef {{ element: HTMLElement, top: number, height: number }} Drawn */

/**
 * `box` scrolls. `draw(number, element)` returns the element of a row; it may reuse the given `element`, which showed
 * this row or another one before. `onScroll({ isAtEnd, byUser })` is called when other rows are in sight.
 */
export class VirtualRows {
  /** @type {HTMLElement} */
  #box;
  #space = document.createElement("div");
  #layer = document.createElement("div");
  /** @type {(number: number, element?: HTMLElement) => HTMLElement} */
  #draw;
  /** @type {(where: { isAtEnd: boolean, byUser: boolean }) => void} */
  #onScroll;
  #count = 0;
  #first = 0;
  #above = 0;
  #isStuck = false;
  #isAtEnd = true;
  /** @type {Map<number, Drawn>} */
  #drawn = new Map();
  #scrolled = 0;
  #height = ROW;
  #boxHeight = 0;
  /** The box's height as it was measured last: to ask for it costs a layout if anything has changed. */
  #room = 0;
  /** Whether the scroll bar is at its end, and the list is long. */
  #isSettled = false;
  /** @type {number | undefined} */
  #frame;
  /** @type {number | undefined} */
  #settling;

  /**
   * @param {HTMLElement} box
   * @param {(number: number, element?: HTMLElement) => HTMLElement} draw
   * @param {(where: { isAtEnd: boolean, byUser: boolean }) => void} onScroll
   */
  constructor(box, draw, onScroll = () => {}) {
    this.#box = box;
    this.#draw = draw;
    this.#onScroll = onScroll;
    this.#space.className = "rows-space";
    this.#layer.className = "rows";
    this.#space.append(this.#layer);
    box.append(this.#space);
    box.addEventListener("scroll", () => this.#follow(), { passive: true });
    new ResizeObserver(() => {
      this.#measure();
      this.refresh();
    }).observe(box);
  }

  get #sight() {
    return { first: this.#first, above: this.#above, count: this.#count, height: this.#height, room: this.#room };
  }

  get layer() {
    return this.#layer;
  }

  /** Numbers of the first and the last row in sight. */
  get inSight() {
    const most = Math.ceil(this.#measure() / this.#height);
    return [this.#first, Math.min(this.#count - 1, this.#first + most)];
  }

  get isStuck() {
    return this.#isStuck;
  }

  get count() {
    return this.#count;
  }

  /** Set the number of rows. While the list is stuck to its end, the last row stays in sight. */
  set count(count) {
    this.#count = count;
    this.refresh();
  }

  /** @type {(isStuck: boolean) => void} */
  stick(isStuck) {
    this.#isStuck = isStuck;
    this.#isSettled = false;
    this.refresh();
  }

  /**
   * Bring a row into sight, in the middle.
   *
   * @type {(number: number) => void}
   */
  show(number) {
    this.#isStuck = this.#isSettled = false;
    this.#first = Math.max(0, Math.min(number, this.#count - 1));
    this.#above = -Math.floor(this.#measure() / 2);
    this.#paint();
    this.#settle();
  }

  /**
   * Move by so many pixels, but not beyond the ends.
   *
   * @type {(pixels: number) => void}
   */
  move(pixels) {
    if (pixels < 0) this.#isStuck = this.#isSettled = false;
    this.#above += pixels;
    this.#paint();
    this.#settle();
    this.#onScroll({ isAtEnd: this.#isAtEnd, byUser: true });
  }

  /**
   * Draw the visible rows before the next frame. While a row is pressed they stay as they are: a click on a row that
   * becomes another one in the middle of it would be lost, or do something else.
   */
  refresh() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = undefined;
      if (this.#isPressed()) return this.refresh();
      this.#paint();
      this.#settle();
    });
  }

  /** The box was scrolled. By a little: the rows move by as much. By much: the bar's place is a share of the list. */
  #follow() {
    const by = this.#box.scrollTop - this.#scrolled;
    if (!by) return;
    // not the user but the browser has scrolled, because the box has another height
    if (this.#measure() !== this.#boxHeight) return this.refresh();
    this.#scrolled = this.#box.scrollTop;
    this.#isSettled = false;
    const range = this.#box.scrollHeight - this.#box.clientHeight;
    this.#isStuck = false;
    if (this.#scrolled <= 0) [this.#first, this.#above] = [0, 0];
    else if (this.#scrolled >= range - 1) [this.#first, this.#above] = [this.#count, 0];
    else if (Math.abs(by) <= this.#box.clientHeight) this.#above += by;
    else this.#jump(this.#scrolled / range);
    this.#paint();
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => this.#settle(), SETTLED);
    this.#onScroll({ isAtEnd: this.#isAtEnd, byUser: true });
  }

  /** @type {(share: number) => void} */
  #jump(share) {
    const { clientHeight: room } = this.#box;
    [this.#first, this.#above] = rowAt(share, { ...this.#sight, room });
  }

  /** Make the rows around those in sight, and put them where they belong. */
  #paint() {
    const height = this.#room || this.#measure();
    this.#walk();
    if (this.#isStuck) [this.#first, this.#above] = [Math.max(0, this.#count - 1), 0];
    const [from, to] = windowOf({ ...this.#sight, room: height }, ROW, this.#isStuck);
    this.#fill(from, to);
    this.#place(from, to, height);
  }

  /** While the edge lies beyond rows that were measured, go on to the row at the edge. */
  #walk() {
    this.#first = Math.min(this.#first, Math.max(0, this.#count));
    while (this.#above < 0 && this.#first > 0) this.#above += this.#heightOf(--this.#first);
    while (this.#first < this.#count - 1 && this.#above >= this.#heightOf(this.#first))
      this.#above -= this.#heightOf(this.#first++);
    if (this.#first === 0 && this.#above < 0) this.#above = 0;
  }

  #measure() {
    this.#room = this.#box.clientHeight;
    return this.#room;
  }

  /** @type {(number: number) => number} */
  #heightOf(number) {
    return this.#drawn.get(number)?.height ?? this.#height;
  }

  /** @type {(from: number, to: number) => void} */
  #fill(from, to) {
    const spare = this.#isHeld() ? [] : [...this.#drawn].filter(([number]) => number < from || number >= to);
    // remove the spare elements only if other rows stay in their place; otherwise all elements can stay
    if (spare.length < this.#drawn.size) for (const [, { element }] of spare) element.remove();
    /** @type {Map<number, Drawn>} */
    const drawn = new Map();
    for (let number = from; number < to; number += 1) {
      const element = this.#drawn.get(number)?.element ?? spare.shift()?.[1].element;
      drawn.set(number, { element: this.#draw(number, element), top: 0, height: 0 });
    }
    this.#drawn = drawn;
    this.#arrange([...drawn.values()].map(({ element }) => element));
  }

  /** Whether a row is pressed, has the focus or is selected: then it must not become another one. */
  #isHeld() {
    const selection = getSelection();
    const isSelected = selection && !selection.isCollapsed && this.#box.contains(selection.anchorNode);
    return isSelected || this.#isPressed() || this.#layer.contains(document.activeElement);
  }

  #isPressed() {
    return this.#layer.matches(":active");
  }

  /**
   * Put these elements into the layer, without touching those that are in their place already.
   *
   * @type {(elements: HTMLElement[]) => void}
   */
  #arrange(elements) {
    /** @type {Set<Element>} */
    const wanted = new Set(elements);
    for (const element of [...this.#layer.children]) if (!wanted.has(element)) element.remove();
    let at = this.#layer.firstChild;
    for (const element of elements) {
      if (at && element === at) at = at.nextSibling;
      else this.#layer.insertBefore(element, at);
    }
  }

  /** @type {(from: number, to: number, height: number) => void} */
  #place(from, to, height) {
    /** @type {[number: number, top: number, height: number][]} */
    const tops = [];
    for (const [number, row] of this.#drawn) {
      row.top = row.element.offsetTop;
      row.height = row.element.offsetHeight || ROW;
      tops.push([number, row.top, row.height]);
    }
    const [, top = 0, length = 0] = tops.at(-1) ?? [];
    const total = top + length;
    if (tops.length) this.#height = Math.max(ROW, this.#height * 0.9 + (total / tops.length) * 0.1);
    let edge = (this.#drawn.get(this.#first)?.top ?? total) + this.#above;
    if (to === this.#count) edge = Math.min(edge, total - height);
    if (from === 0) edge = Math.max(0, edge);
    this.#isAtEnd = to === this.#count && total - edge <= height + 2;
    const at = tops.findLast(([, top]) => top <= edge) ?? tops[0];
    if (at) [this.#first, this.#above] = [at[0], edge - at[1]];
    this.#layer.style.transform = `translateY(${-Math.round(edge)}px)`;
  }

  /** Put the scroll bar where it belongs. */
  #settle() {
    clearTimeout(this.#settling);
    const clientHeight = this.#room;
    // at the end of a growing list the scroll bar is there already, and each change costs a layout of the page
    if (this.#isStuck && this.#isSettled && clientHeight === this.#boxHeight) return;
    this.#boxHeight = clientHeight;
    this.#isSettled = this.#isStuck && this.#count * this.#height > 2 * clientHeight;
    const [length, top] = barOf({ ...this.#sight, room: clientHeight }, this.#isAtEnd);
    this.#space.style.height = `${length}px`;
    if (Math.abs(this.#box.scrollTop - top) > 0.5) this.#box.scrollTop = top;
    this.#scrolled = this.#box.scrollTop;
  }
}
