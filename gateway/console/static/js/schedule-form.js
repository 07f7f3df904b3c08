// The form that changes a schedule: it shows the next runs as the user types.
import { address, api, isAbort, latestPageAt } from "./api.js";
import { problems, runs, scheduleZone, soonest } from "./crawl-preview.js";
import { byId, fieldOf, fieldsOf, h, within } from "./dom.js";
import { bodyOf } from "./fields.js";
import { keepValue, takeParts } from "./parts.js";
import { clearProblems, inWords, mark, ofTouched, problemsOf } from "./problems.js";
import { chooseByEnter } from "./spider-field.js";
import { WhenFields } from "./when-fields.js";

const PAUSE_MS = 350;
// Fields that a preview does not accept: they do not decide whether the change would be refused.
const NOT_ASKED = ["rev", "name", "webhooks"];
const SPIDERS = ["spider", "project", "version"];
/** A form outside of the page, for schedules that cannot be changed. */
const form = /** @type {HTMLFormElement} */ (document.querySelector("form#schedule") ?? h("form"));
/** @type {Set<string>} */
const touched = new Set();
/** @type {number | undefined} */
let waiting;
let underWay = new AbortController();

/** @type {(event: Event) => string} */
const nameIn = ({ target }) => fieldsOf(form).find((field) => field === target)?.name ?? "";

if (form.isConnected) {
  form.addEventListener("input", (event) => {
    touched.add(nameIn(event));
    clearTimeout(waiting);
    waiting = setTimeout(look, PAUSE_MS);
  });
  // the reason why a change was refused must stay on the page, and a preview would replace it
  form.addEventListener("submit", () => {
    clearTimeout(waiting);
    underWay.abort();
  });
  form.addEventListener("change", (event) => SPIDERS.includes(nameIn(event)) && showSpider());
  chooseByEnter(form);
  look();
}

/** What another spider takes, and which versions another project has. */
async function showSpider() {
  const values = Object.fromEntries(SPIDERS.map((name) => [name, fieldOf(form, name)?.value || null]));
  const here = new URLSearchParams(location.search);
  const page = await latestPageAt(address(location.pathname, { ...values, user_id: here.get("user_id") }));
  if (!page) return;
  const kept = fieldsOf(form).filter(
    ({ name }) => name === "start_urls" || (touched.has(name) && name.startsWith("params")),
  );
  takeParts(page, ["version-field", "parameters", "spiders"]);
  for (const old of kept) keepValue(form, old);
  look();
}

async function look() {
  underWay.abort();
  underWay = new AbortController();
  const { missing } = within(form, "when-fields", WhenFields);
  if (missing) say(problems([missing]));
  const found = missing ? [missing] : await preview();
  if (!found) return;
  clearProblems(form);
  mark(form, ofTouched(found, touched));
}

/**
 * Show the next runs, and return the problems; undefined if another preview was asked for in the meantime.
 *
 * @type {() => Promise<Problem[] | undefined>}
 */
async function preview() {
  try {
    const body = { user_id: form.dataset.user, ...asked(bodyOf(form)) };
    /** @type {Preview} */
    const seen = await api("POST /crawl/preview", { body, signal: underWay.signal });
    // the preview also says that the schedule exists already, which is this one: that is not shown
    const zone = scheduleZone(seen);
    const coming = h("div", { class: "stack" }, soonest(seen.runs, zone), runs(seen.runs, zone));
    say(seen.problems.length || !seen.runs.length ? problems(seen.problems) : coming);
    return seen.problems;
  } catch (error) {
    if (isAbort(error)) return undefined;
    const found = problemsOf(error);
    say(problems(found.map((one) => ({ message: inWords(one) }))));
    return found;
  }
}

/** @type {(body: import("./fields.js").Values) => import("./fields.js").Values} */
function asked(body) {
  return Object.fromEntries(
    Object.entries(body).filter(([name, value]) => value != null && !NOT_ASKED.includes(name)),
  );
}

/** @type {(element: HTMLElement) => void} */
function say(element) {
  const box = byId("preview");
  const now = element.childElementCount ? element : h("p", { class: "muted" }, "None.");
  if (box.textContent !== now.textContent) box.replaceChildren(now);
}
