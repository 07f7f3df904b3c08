// Enter in the field of a spider chooses the spider and goes on to the start URLs. It never submits the form: the list
// of names may be open, and Enter is how people choose from it.

/** @param {HTMLFormElement} form */
export function chooseByEnter(form) {
  form.addEventListener("keydown", (event) => {
    const field = event.target;
    const isEnter = event.key === "Enter" && !event.isComposing;
    if (!isEnter || !(field instanceof HTMLInputElement) || field.name !== "spider") return;
    event.preventDefault();
    complete(field);
    // the browser says that the field has changed when it is left
    /** @type {HTMLElement | null} */ (form.querySelector("textarea[name=start_urls]"))?.focus();
  });
}

/**
 * Take the one name of the list that has the typed text.
 *
 * @param {HTMLInputElement} field
 */
function complete(field) {
  const names = [...(field.list?.querySelectorAll("option") ?? [])].map((one) => one.value);
  const typed = field.value.trim().toLowerCase();
  const [only, ...others] = names.filter((name) => name.toLowerCase().includes(typed));
  if (!typed || !only || others.length || only === field.value) return;
  field.value = only;
  field.dispatchEvent(new Event("change", { bubbles: true }));
}
