// The form of a new crawl: what will happen is said as one types, and what the same request is for other programs.
import { bodyOf, clearProblems, mark } from "./act.js";
import { ApiError, address, api, latestPageAt } from "./api.js";
import { preview, refusal, verdictOf } from "./crawl-preview.js";
import { commandLine, curl, python } from "./same-as.js";
import { h, prose, shown } from "./text.js";
import { toast, toastAfterLoad } from "./toast.js";
import "./when-fields.js";

const PAUSE_MS = 350;
const UNREADABLE = "Correct the field that cannot be read: then the same request is here.";
const form = document.getElementById("crawl");
const place = (id) => document.getElementById(id);
const touched = new Set();
let waiting,
  underWay,
  kind = "curl",
  exists = false;

if (form) {
  form.addEventListener("input", ({ target }) => changed(target));
  // what is said of a crawl that was refused must stand: a preview takes it away
  form.addEventListener("submit", () => {
    clearTimeout(waiting);
    underWay?.abort();
  });
  form.addEventListener("focusout", ({ target }) => target.value && touched.add(target.name));
  form.addEventListener(
    "change",
    ({ target }) => ["spider", "project", "version"].includes(target.name) && showSpider(),
  );
  form.addEventListener("crawl-asked", ({ detail }) => goTo(detail));
  for (const chip of form.querySelectorAll("[data-same]")) chip.addEventListener("click", () => showAs(chip));
  place("copy").addEventListener("click", copy);
  look();
}

function changed(field) {
  // half a name is no spider: that is said when its field is left
  if (field.name && field.name !== "spider") touched.add(field.name);
  if (field.name === "spider") search(field.value);
  clearTimeout(waiting);
  waiting = setTimeout(look, PAUSE_MS);
}

// --- what will happen

async function look() {
  const { isAgain: again, kind: when, missing } = form.querySelector("when-fields");
  const button = form.querySelector("button[data-words]");
  button.textContent = when === "now" ? button.dataset.words : button.dataset.wordsLater;
  form.dataset.api = again ? "POST /schedules" : "POST /crawl";
  for (const part of form.querySelectorAll("[data-only-again]")) {
    part.hidden = !again;
    for (const field of part.querySelectorAll("input")) field.disabled = !again;
  }
  underWay?.abort();
  underWay = new AbortController();
  let body;
  try {
    body = bodyOf(form);
  } catch (error) {
    say(refusal([{ message: `${error.field}: ${error.message}` }]), "");
    place("same").textContent = UNREADABLE;
    showFaults([{ field: error.field, message: error.message }]);
    return;
  }
  showSame(body);
  if (!body.spider) return;
  if (missing) {
    say(h("p", {}, prose(missing.message)), "");
    showFaults([missing]);
    return;
  }
  const { name: _, ...asked } = body;
  try {
    const seen = await api("POST /crawl/preview", { body: asked, signal: underWay.signal });
    exists = seen.answer?.cached ?? false;
    say(preview(seen), verdictOf(seen));
    showFaults(seen.problems);
  } catch (error) {
    if (error.name === "AbortError") return;
    refused(error);
  }
}

function refused(error) {
  if (!(error instanceof ApiError)) {
    say([h("p", {}, "The gateway does not answer. Is it running?")], "");
    return;
  }
  const found = error.detail?.problems ?? [{ field: error.field, message: error.message }];
  say(
    refusal(
      found.map(({ field, message }) => ({
        message: field && !message.startsWith(field) ? `${field}: ${message}` : message,
      })),
    ),
    "",
  );
  showFaults(found);
}

/** Only what has changed is said again to a screen reader. */
function say(elements, verdict) {
  const box = place("preview");
  const now = h("div", {}, elements);
  if (box.textContent !== now.textContent) box.replaceChildren(...now.childNodes);
  form.querySelector("[data-verdict]").textContent = verdict;
}

/** Beside fields that the user has been at; the others are not finished. */
function showFaults(found) {
  clearProblems(form);
  mark(
    form,
    found.filter(({ field }) => field && [...touched].some((name) => field === name || field.startsWith(`${name}.`))),
  );
}

// --- the spider

async function showSpider() {
  const values = Object.fromEntries(
    ["spider", "project", "version"].map((name) => [name, form.elements[name]?.value || null]),
  );
  const here = new URLSearchParams(location.search);
  const url = address("/console/crawl", { ...values, from: here.get("from"), user_id: here.get("user_id") });
  const page = await latestPageAt(url);
  if (!page) return;
  const typed = new Map(
    [...form.elements]
      .filter((field) => touched.has(field.name) && field.name.startsWith("params"))
      .map((field) => [field.name, field]),
  );
  for (const id of ["about", "version-field", "parameters", "spiders"])
    place(id).replaceWith(document.adoptNode(page.getElementById(id)));
  for (const [name, old] of typed) {
    const field = form.elements[name];
    if (field?.type === old.type) [field.value, field.checked] = [old.value, old.checked];
  }
  const needed = page.getElementById("field-start_urls").required;
  place("field-start_urls").required = needed;
  place("field-start_urls").closest(".field").querySelector("label .muted")?.toggleAttribute("hidden", needed);
  history.replaceState(null, "", url);
  look();
}

let searched;
function search(text) {
  clearTimeout(searched);
  searched = setTimeout(async () => {
    const query = { q: text || null, project: form.elements.project.value || null, limit: 50 };
    const { spiders } = await api("GET /spiders", { query }).catch(() => ({ spiders: [] }));
    const names = new Map(spiders.map((one) => [one.name, one.project]));
    if (names.size)
      place("spiders").replaceChildren(
        ...[...names].map(([name, project]) => h("option", { value: name }, shown(project, 60))),
      );
  }, PAUSE_MS);
}

// --- afterwards

function goTo(answer) {
  const id = answer.schedule_id ?? answer.job_id;
  // a schedule does not say whether it is new
  if (answer.cached ?? exists) toastAfterLoad("The same crawl was asked for before: this is it.");
  else if (answer.schedule_id) toastAfterLoad("The schedule was saved.");
  location.assign(`/console/${answer.schedule_id ? "schedules" : "jobs"}/${encodeURIComponent(id)}`);
}

// --- the same as

function showAs(chip) {
  kind = chip.dataset.same;
  for (const one of form.querySelectorAll("[data-same]")) one.setAttribute("aria-pressed", one === chip);
  try {
    showSame(bodyOf(form));
  } catch {
    // what is wrong is said beside its field
    place("same").textContent = UNREADABLE;
  }
}

function showSame(body) {
  const options = Object.fromEntries(
    [...form.querySelectorAll("[data-option]")].map(({ name, dataset }) => [name, dataset.option]),
  );
  const request = {
    origin: location.origin,
    path: form.dataset.api.split(" ")[1],
    body,
    options,
    withKey: "withKey" in form.dataset,
  };
  const { text, without } = {
    curl: () => ({ text: curl(request) }),
    python: () => ({ text: python(request) }),
    cli: () => commandLine(request),
  }[kind]();
  place("same").textContent = text;
  place("same-note").hidden = !without?.length;
  place("same-note").textContent = without?.length
    ? `The command line has no option for: ${without.join(", ")}.`
    : "";
}

async function copy() {
  const code = place("same");
  try {
    await navigator.clipboard.writeText(code.textContent);
    toast("Copied");
  } catch {
    // no page that came over plain http from another machine may write to the clipboard
    getSelection().selectAllChildren(code);
    toast("Press Ctrl-C to copy what is marked");
  }
}
