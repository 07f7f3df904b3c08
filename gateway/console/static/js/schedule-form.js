// The form that changes a schedule: its runs from now on are said as one types.
import { bodyOf, clearProblems, mark } from "./act.js";
import { address, api, latestPageAt } from "./api.js";
import { problems, runs } from "./crawl-preview.js";
import { h } from "./text.js";
import "./when-fields.js";

const PAUSE_MS = 350;
// What a preview does not take of the form: it has no part in whether the change would be refused.
const NOT_ASKED = ["rev", "name", "webhooks"];
const SPIDERS = ["spider", "project", "version"];
const form = document.getElementById("schedule");
const touched = new Set();
let waiting, underWay;

if (form) {
  form.addEventListener("input", ({ target }) => {
    touched.add(target.name);
    clearTimeout(waiting);
    waiting = setTimeout(look, PAUSE_MS);
  });
  // what is said of a change that was refused must stand: a preview takes it away
  form.addEventListener("submit", () => {
    clearTimeout(waiting);
    underWay?.abort();
  });
  form.addEventListener("change", ({ target }) => SPIDERS.includes(target.name) && showSpider());
  look();
}

/** What another spider takes, and which versions another project has. */
async function showSpider() {
  const values = Object.fromEntries(SPIDERS.map((name) => [name, form.elements[name].value || null]));
  const here = new URLSearchParams(location.search);
  const page = await latestPageAt(address(location.pathname, { ...values, user_id: here.get("user_id") }));
  if (!page) return;
  const { value } = form.elements.start_urls;
  const typed = [...form.elements].filter(({ name }) => touched.has(name) && name.startsWith("params"));
  for (const id of ["version-field", "parameters", "spiders"])
    document.getElementById(id).replaceWith(document.adoptNode(page.getElementById(id)));
  form.elements.start_urls.value = value;
  for (const old of typed) {
    const field = form.elements[old.name];
    if (field?.type === old.type) [field.value, field.checked] = [old.value, old.checked];
  }
  look();
}

async function look() {
  underWay?.abort();
  underWay = new AbortController();
  const { missing } = form.querySelector("when-fields");
  if (missing) say(problems([missing]));
  const found = missing ? [missing] : await preview();
  if (!found) return;
  clearProblems(form);
  mark(
    form,
    found.filter(({ field }) => field && [...touched].some((name) => field === name || field.startsWith(`${name}.`))),
  );
}

/** Says the runs to come, and returns what is wrong; undefined if something else is asked for meanwhile. */
async function preview() {
  try {
    const body = { user_id: form.dataset.user, ...asked(bodyOf(form)) };
    const seen = await api("POST /crawl/preview", { body, signal: underWay.signal });
    // that it exists already is no news: it is this one
    say(seen.problems.length ? problems(seen.problems) : runs(seen.runs, seen.schedule.timezone));
    return seen.problems;
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    const found = error.detail?.problems ?? [{ field: error.field, message: error.message }];
    say(
      problems(
        found.map(({ field, message }) => ({
          message: field && !message.startsWith(field) ? `${field}: ${message}` : message,
        })),
      ),
    );
    return found;
  }
}

function asked(body) {
  return Object.fromEntries(
    Object.entries(body).filter(([name, value]) => value != null && !NOT_ASKED.includes(name)),
  );
}

function say(element) {
  const box = document.getElementById("preview");
  const now = element.childElementCount ? element : h("p", { class: "muted" }, "None.");
  if (box.textContent !== now.textContent) box.replaceChildren(now);
}
