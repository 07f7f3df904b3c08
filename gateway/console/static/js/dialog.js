// A question before something is done that cannot be undone.
import { h } from "./dom.js";

/**
 * Whether the user agrees. `yes` is the button's text; a `…` at its end, which says that something is asked first, is left out. The focus returns to where it was.
 *
 * @param {string} words
 * @param {{ yes?: string | undefined, danger?: boolean | undefined }} options
 * @returns {Promise<boolean>}
 */
export function confirmed(words, { yes = "Yes", danger = false } = {}) {
  return new Promise((answer) => {
    const dialog = h(
      "dialog",
      { "aria-labelledby": "question" },
      h(
        "form",
        { method: "dialog" },
        h("p", { id: "question" }, words),
        h(
          "div",
          { class: "buttons" },
          h("button", { class: "button", value: "", autofocus: true }, "Cancel"),
          h("button", { class: `button ${danger ? "danger" : "primary"}`, value: "yes" }, yes.replace(/…$/, "")),
        ),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      answer(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
