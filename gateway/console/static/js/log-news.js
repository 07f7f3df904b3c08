// How many new lines a log has below the visible ones: a button that leads there, and words for screen readers.
import { h } from "./dom.js";
import { count } from "./text.js";

/** Milliseconds between two announcements. */
const ANNOUNCE = 10_000;

export class LogNews {
  #unseen = 0;
  #announcedAt = 0;
  #announced = h("p", { class: "visually-hidden", role: "status" });

  /** @param {() => void} onFollow */
  constructor(onFollow) {
    const attributes = { type: "button", class: "button primary small log-new", hidden: true, onclick: onFollow };
    this.button = h("button", attributes);
  }

  /** The text for a screen reader. */
  get element() {
    return this.#announced;
  }

  /** @param {string} words */
  announce(words) {
    this.#announced.textContent = words;
  }

  /** @param {number} lines */
  add(lines) {
    this.#unseen += Math.max(0, lines);
  }

  /** @param {boolean} isFollowing a view that follows the end has shown all lines */
  tell(isFollowing) {
    if (isFollowing) this.#unseen = 0;
    const words = `${count(this.#unseen)} new ${this.#unseen === 1 ? "line" : "lines"}`;
    this.button.hidden = !this.#unseen;
    if (this.button.textContent !== words) this.button.textContent = words;
    if (this.button.hidden || Date.now() - this.#announcedAt <= ANNOUNCE) return;
    this.#announcedAt = Date.now();
    this.announce(words);
  }
}
