// Views of a list that the user has saved: links, kept by the server. The filter may change without a new page, so
// which of them is shown, and what can be done with it, is said here.
import { api, messageOf, own } from "./api.js";
import { h } from "./dom.js";
import { shown } from "./text.js";
import { toast } from "./toast.js";

/** Where an earlier release kept the views of the list of jobs, in this browser. */
const EARLIER = own("job-views");
/** Parameters of an address that are no part of a view: the place in the list, its length, and as whom an admin looks. */
const PASSING = ["after", "limit", "user_id"];

/** @type {(query: URLSearchParams | string) => string} */
function lasting(query) {
  const kept = new URLSearchParams(query);
  for (const name of PASSING) kept.delete(name);
  return kept.toString();
}

class SavedViews extends HTMLElement {
  again = () => this.render();
  /** @type {View[]} */
  views = [];

  connectedCallback() {
    this.views = JSON.parse(this.dataset.views ?? "[]");
    this.render();
    this.adopt();
    document.addEventListener("htmx:after:swap", this.again);
  }

  disconnectedCallback() {
    document.removeEventListener("htmx:after:swap", this.again);
  }

  /** Have the server keep what this browser still keeps. */
  async adopt() {
    const earlier = localStorage.getItem(EARLIER);
    if (!earlier || this.dataset.list !== "jobs") return;
    /** @type {{ views: { name: string, query: string }[], first: string | null }} */
    const { views, first } = JSON.parse(earlier);
    for (const { name, query } of views) {
      const body = { list: "jobs", name, query: lasting(query), default: name === first };
      if (!(await this.change("POST /views", body))) return;
    }
    localStorage.removeItem(EARLIER);
  }

  get path() {
    return `/console/${this.dataset.list}`;
  }

  render() {
    const here = lasting(location.search);
    const current = this.views.find((view) => lasting(view.query) === here);
    const links = this.views.map((view) =>
      h(
        "a",
        { class: "chip", href: this.addressOf(view), "aria-current": view === current ? "page" : null },
        shown(view.name, 60),
        view.default ? h("span", { class: "muted" }, "default") : null,
      ),
    );
    const buttons = current ? this.ofCurrent(current) : here ? [button("Save this view…", () => this.save())] : [];
    this.replaceChildren(...links, ...buttons);
  }

  /** @type {(view: View) => string} */
  addressOf(view) {
    const query = new URLSearchParams(view.query);
    const user = new URLSearchParams(location.search).get("user_id");
    if (user) query.set("user_id", user);
    return `${this.path}?${query}`;
  }

  /** @type {(view: View) => HTMLElement[]} */
  ofCurrent(view) {
    const call = `/views/${view.view_id}`;
    return [
      button(view.default ? "Unset as default" : "Set as default", () =>
        this.change(`PATCH ${call}`, { default: !view.default }),
      ),
      button("Share…", () => this.share(view)),
      button("Delete view", () => this.change(`DELETE ${call}`)),
    ];
  }

  /**
   * Send a change of the saved views, then read and show them again. Returns whether that worked.
   *
   * @param {string} call
   * @param {object} [body]
   */
  async change(call, body) {
    try {
      await api(call, body ? { body } : {});
      /** @type {{ views: View[] }} */
      const { views } = await api("GET /views", { query: { list: this.dataset.list } });
      this.views = views;
    } catch (error) {
      toast(shown(messageOf(error), 500), "bad");
      return false;
    }
    this.render();
    this.querySelector("button")?.focus();
    return true;
  }

  save() {
    const input = h("input", { id: "view-name", required: true, maxlength: 60, autocomplete: "off" });
    const first = h("input", { id: "view-first", type: "checkbox" });
    const fields = [
      h("div", { class: "field" }, h("label", { for: "view-name" }, "Name"), input),
      h("div", { class: "field tick" }, first, h("label", { for: "view-first" }, "Use as the default view")),
    ];
    ask("Save this view", fields, "Save", async () => {
      const name = input.value.trim();
      const body = { list: this.dataset.list, name, query: lasting(location.search), default: first.checked };
      if (name && (await this.change("POST /views", body))) toast(`Saved as ${shown(name, 60)}`);
    });
  }

  /** @type {(view: View) => void} */
  share(view) {
    const shared = h("input", { id: "view-shared", type: "checkbox", checked: view.shared });
    const link = h("input", { id: "view-link", readonly: true, value: location.origin + view.page_url });
    const fields = [
      h(
        "div",
        { class: "field tick" },
        shared,
        h("label", { for: "view-shared" }, "Everybody who may use the console may open it"),
      ),
      h("div", { class: "field" }, h("label", { for: "view-link" }, "Link"), link),
      h(
        "p",
        { class: "muted small" },
        "Each person sees only the jobs that they may see. The link stays the same when you change the filters of this view.",
      ),
    ];
    ask("Share this view", fields, "Done", async () => {
      if (shared.checked === view.shared) return;
      const body = { shared: shared.checked };
      if (await this.change(`PATCH /views/${view.view_id}`, body))
        toast(body.shared ? "Shared" : "Not shared any more");
    });
    link.select();
  }
}

/**
 * A dialog with these fields; `act` is called if its button is pressed.
 *
 * @param {string} title
 * @param {HTMLElement[]} fields
 * @param {string} word
 * @param {() => void} act
 */
function ask(title, fields, word, act) {
  const close = () => {
    dialog.close();
  };
  const buttons = h(
    "div",
    { class: "buttons" },
    h("button", { class: "button", type: "button", onclick: close }, "Cancel"),
    h("button", { class: "button primary", value: "yes" }, word),
  );
  const form = h("form", { method: "dialog" }, h("h2", { id: "view-title" }, title), ...fields, buttons);
  const dialog = h("dialog", { "aria-labelledby": "view-title" }, form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (dialog.returnValue === "yes") act();
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** @type {(words: string, onclick: () => void) => HTMLElement} */
const button = (words, onclick) => h("button", { class: "button small quiet", type: "button", onclick }, words);

customElements.define("saved-views", SavedViews);
