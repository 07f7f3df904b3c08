// The form of a new crawl: it shows, as the user types, what would happen, and the same request for other programs.
import { ApiError, address, api, isAbort, latestPageAt, messageOf } from "./api.js";
import { preview, refusal, verdictOf } from "./crawl-preview.js";
import { allWithin, byId, fieldOf, fieldsOf, h, prose, within } from "./dom.js";
import { bodyOf, FieldError } from "./fields.js";
import { keepValue, takeParts } from "./parts.js";
import { clearProblems, inWords, mark, ofTouched, problemsOf } from "./problems.js";
import { commandLine, curl, python } from "./same-as.js";
import { chooseByEnter } from "./spider-field.js";
import { shown } from "./text.js";
import { toast, toastAfterLoad } from "./toast.js";
import { WhenFields } from "./when-fields.js";

const PAUSE_MS = 350;
const SPIDER = ["spider", "project", "version"];
const UNREADABLE = "Fix the invalid field to see the command.";
/** A form outside of the page, for users who may not crawl. */
const form = /** @type {HTMLFormElement} */ (document.querySelector("form#crawl") ?? h("form"));
/** @type {Set<string>} */
const touched = new Set();
/** @type {number | undefined} */
let waiting;
let underWay = new AbortController();
let kind = "curl";
let exists = false;

/** @type {(event: Event) => Field | undefined} */
const fieldIn = ({ target }) => fieldsOf(form).find((field) => field === target);

if (form.isConnected) {
  form.addEventListener("input", (event) => changed(fieldIn(event)));
  // the reason why a crawl was refused must stay on the page, and a preview would replace it
  form.addEventListener("submit", () => {
    clearTimeout(waiting);
    underWay.abort();
  });
  form.addEventListener("focusout", (event) => {
    const field = fieldIn(event);
    if (field?.value) touched.add(field.name);
  });
  form.addEventListener("change", (event) => SPIDER.includes(fieldIn(event)?.name ?? "") && showSpider());
  chooseByEnter(form);
  form.addEventListener("crawl-asked", ({ detail }) => goTo(detail));
  for (const chip of allWithin(form, "[data-same]")) chip.addEventListener("click", () => showAs(chip));
  byId("copy").addEventListener("click", copy);
  look();
}

/** @type {(field: Field | undefined) => void} */
function changed(field) {
  // a name that is still being typed is no spider: report that only when the field is left
  if (field?.name && field.name !== "spider") touched.add(field.name);
  if (field?.name === "spider") search(field.value);
  clearTimeout(waiting);
  waiting = setTimeout(look, PAUSE_MS);
}

// --- what will happen

async function look() {
  const { isAgain: again, kind: when, missing } = within(form, "when-fields", WhenFields);
  const button = within(form, "button[data-words]");
  button.textContent = (when === "now" ? button.dataset.words : button.dataset.wordsLater) ?? "";
  form.dataset.api = again ? "POST /schedules" : "POST /crawl";
  for (const part of allWithin(form, "[data-only-again]")) {
    part.hidden = !again;
    for (const field of part.querySelectorAll("input")) field.disabled = !again;
  }
  underWay.abort();
  underWay = new AbortController();
  const body = readable();
  if (!body) return;
  showSame(body);
  if (!body.spider) return;
  if (missing) {
    say(h("p", {}, prose(missing.message)), "");
    showFaults([missing]);
    return;
  }
  const { name: _, ...asked } = body;
  try {
    /** @type {Preview} */
    const seen = await api("POST /crawl/preview", { body: asked, signal: underWay.signal });
    exists = seen.answer?.cached ?? false;
    say(preview(seen), verdictOf(seen));
    showFaults(seen.problems);
  } catch (error) {
    if (isAbort(error)) return;
    refused(error);
  }
}

/** The body of the request; undefined if a field cannot be read. This problem is then shown. */
function readable() {
  try {
    return bodyOf(form);
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    say(refusal([{ message: `${error.field}: ${error.message}` }]), "");
    byId("same").textContent = UNREADABLE;
    showFaults(problemsOf(error));
    return undefined;
  }
}

/** @type {(error: unknown) => void} */
function refused(error) {
  if (!(error instanceof ApiError)) {
    say([h("p", {}, messageOf(error))], "");
    return;
  }
  const found = problemsOf(error);
  say(refusal(found.map((one) => ({ message: inWords(one) }))), "");
  showFaults(found);
}

/**
 * A screen reader reads only the lines that have changed.
 *
 * @type {(elements: Child[] | Child, verdict: string) => void}
 */
function say(elements, verdict) {
  const box = byId("preview");
  const now = h("div", {}, elements);
  if (box.textContent !== now.textContent) box.replaceChildren(...now.childNodes);
  within(form, "[data-verdict]").textContent = verdict;
}

/**
 * Show problems beside the fields that the user has visited. The other fields are not filled in yet.
 *
 * @type {(found: Problem[]) => void}
 */
function showFaults(found) {
  clearProblems(form);
  mark(form, ofTouched(found, touched));
}

// --- the spider

async function showSpider() {
  const values = Object.fromEntries(SPIDER.map((name) => [name, fieldOf(form, name)?.value || null]));
  const here = new URLSearchParams(location.search);
  const url = address("/console/crawl", { ...values, from: here.get("from"), user_id: here.get("user_id") });
  const page = await latestPageAt(url);
  if (!page) return;
  const typed = fieldsOf(form).filter(({ name }) => touched.has(name) && name.startsWith("params"));
  takeParts(page, ["about", "version-field", "parameters", "spiders"]);
  for (const old of typed) keepValue(form, old);
  const urls = byId("field-start_urls", HTMLTextAreaElement);
  urls.required = byId("field-start_urls", HTMLTextAreaElement, page).required;
  urls.closest(".field")?.querySelector("label .muted")?.toggleAttribute("hidden", urls.required);
  history.replaceState(null, "", url);
  look();
}

/** @type {number | undefined} */
let searched;

/** @param {string} text */
function search(text) {
  clearTimeout(searched);
  searched = setTimeout(async () => {
    const query = { q: text || null, project: fieldOf(form, "project")?.value || null, limit: 50 };
    /** @type {{ spiders: Spider[] }} */
    const { spiders } = await api("GET /spiders", { query }).catch(() => ({ spiders: [] }));
    const names = new Map(spiders.map((one) => [one.name, one.project]));
    const options = [...names].map(([name, project]) => h("option", { value: name }, shown(project, 60)));
    if (options.length) byId("spiders").replaceChildren(...options);
  }, PAUSE_MS);
}

// --- afterwards

/** @type {(answer: { schedule_id?: string, job_id: string, cached?: boolean }) => void} */
function goTo(answer) {
  const id = answer.schedule_id ?? answer.job_id;
  // the answer does not show whether the schedule is new
  if (answer.cached ?? exists) toastAfterLoad("Identical crawl found. Showing the existing one.");
  else if (answer.schedule_id) toastAfterLoad("Schedule created");
  location.assign(`/console/${answer.schedule_id ? "schedules" : "jobs"}/${encodeURIComponent(id)}`);
}

// --- the same as

/** @type {(chip: HTMLElement) => void} */
function showAs(chip) {
  kind = chip.dataset.same ?? kind;
  for (const one of form.querySelectorAll("[data-same]")) one.setAttribute("aria-pressed", String(one === chip));
  try {
    showSame(bodyOf(form));
  } catch {
    // a problem is shown beside its field
    byId("same").textContent = UNREADABLE;
  }
}

/**
 * The options of the command line that the form's fields name, by the names of the fields.
 *
 * @param {HTMLFormElement} form
 * @returns {Record<string, string>}
 */
function optionsOf(form) {
  /** @type {NodeListOf<HTMLInputElement>} */
  const fields = form.querySelectorAll("[data-option]");
  return Object.fromEntries([...fields].map(({ name, dataset }) => [name, dataset.option ?? ""]));
}

/** @type {(body: import("./fields.js").Values) => void} */
function showSame(body) {
  const path = (form.dataset.api ?? "").split(" ")[1] ?? "";
  const request = {
    origin: location.origin,
    path,
    body,
    options: optionsOf(form),
    withKey: "withKey" in form.dataset,
  };
  const without = kind === "cli" ? commandLine(request).without : [];
  /** @type {Record<string, (asked: import("./same-as.js").Asked) => string>} */
  const spelled = { curl, python, cli: (asked) => commandLine(asked).text };
  byId("same").textContent = spelled[kind]?.(request) ?? "";
  byId("same-note").hidden = !without.length;
  byId("same-note").textContent = without.length ? `The CLI has no option for: ${without.join(", ")}.` : "";
}

async function copy() {
  const code = byId("same");
  try {
    await navigator.clipboard.writeText(code.textContent ?? "");
    toast("Copied");
  } catch {
    // no page that came over plain http from another machine may write to the clipboard
    getSelection()?.selectAllChildren(code);
    toast("Press Ctrl+C to copy the selection");
  }
}
