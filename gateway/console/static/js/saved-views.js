// Views of a list that the user has saved: links, kept in this browser. While there are no keys there are no users, so
// the server has nobody to keep them for; a view is an address, and can be sent to others.
import { own } from "./api.js";
import { h } from "./dom.js";
import { shown } from "./text.js";
import { toast } from "./toast.js";

const KEY = own("job-views");
/**
 * @typedef {{ name: string, query: string }} View
 * @typedef {{ views: View[], first: string | null }} Kept
 */

/** @type {() => Kept} */
const read = () => JSON.parse(localStorage.getItem(KEY) ?? '{"views": [], "first": null}');
/** @type {(kept: Kept) => void} */
const write = (kept) => localStorage.setItem(KEY, JSON.stringify(kept));
const here = () => {
  const query = new URLSearchParams(location.search);
  query.delete("after");
  return query.toString();
};

class SavedViews extends HTMLElement {
  again = () => this.render();

  connectedCallback() {
    const { views, first } = read();
    const view = views.find((one) => one.name === first);
    // the list itself, without any condition, is what the navigation leads to
    if (view && !location.search) location.replace(`${this.dataset.path}?${view.query}`);
    this.render();
    document.addEventListener("htmx:after:swap", this.again);
  }

  disconnectedCallback() {
    document.removeEventListener("htmx:after:swap", this.again);
  }

  render() {
    const { views, first } = read();
    const current = views.find((view) => view.query === here());
    const links = views.map((view) =>
      h(
        "a",
        {
          class: "chip",
          href: `${this.dataset.path}?${view.query}`,
          "aria-current": view === current ? "page" : null,
        },
        shown(view.name, 40),
        view.name === first ? h("span", { class: "muted" }, "first") : null,
      ),
    );
    const buttons = current
      ? this.ofCurrent(current, first)
      : here()
        ? [button("Save this view…", () => this.save())]
        : [];
    this.replaceChildren(...links, ...buttons);
  }

  /** @type {(view: View, first: string | null) => HTMLElement[]} */
  ofCurrent(view, first) {
    const isFirst = view.name === first;
    return [
      /** @type {(words: string, act: () => void) => HTMLElement} */
      button(isFirst ? "Unset as default" : "Set as default", () =>
        this.change((kept) => (kept.first = isFirst ? null : view.name)),
      ),
      button("Delete view", () =>
        this.change((kept) => (kept.views = kept.views.filter((one) => one.name !== view.name))),
      ),
    ];
  }

  /** @type {(how: (kept: Kept) => void) => void} */
  change(how) {
    const kept = read();
    how(kept);
    if (!kept.views.some((view) => view.name === kept.first)) kept.first = null;
    write(kept);
    this.render();
    this.querySelector("button")?.focus();
  }

  save() {
    const input = h("input", { id: "view-name", required: true, maxlength: 40, autocomplete: "off" });
    const first = h("input", { id: "view-first", type: "checkbox" });
    const close = () => {
      dialog.close();
    };
    const dialog = h(
      "dialog",
      { "aria-labelledby": "view-title" },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "view-title" }, "Save this view"),
        h("div", { class: "field" }, h("label", { for: "view-name" }, "Name"), input),
        h("div", { class: "field tick" }, first, h("label", { for: "view-first" }, "Use as the default view")),
        h("p", { class: "muted small" }, "Views are saved in this browser. To share one, copy its URL."),
        h(
          "div",
          { class: "buttons" },
          h("button", { class: "button", type: "button", onclick: close }, "Cancel"),
          h("button", { class: "button primary", value: "save" }, "Save"),
        ),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      const name = input.value.trim();
      if (dialog.returnValue !== "save" || !name) return;
      this.change((kept) => {
        kept.views = [...kept.views.filter((view) => view.name !== name), { name, query: here() }];
        if (first.checked) kept.first = name;
      });
      toast(`Saved as ${shown(name, 40)}`);
    });
    document.body.append(dialog);
    dialog.showModal();
  }
}

/** @type {(words: string, onclick: () => void) => HTMLElement} */
const button = (words, onclick) => h("button", { class: "button small quiet", type: "button", onclick }, words);

customElements.define("saved-views", SavedViews);
