// Offers the fields that fit the chosen scope, and shows a key that was just made, once: it is in the page alone, until that is left. From the first key on the console
// takes one: this browser is signed in with it, or the next call would lead away from the page that shows it.
import { ApiError, api } from "./api.js";
import { allWithin, byId, h, within } from "./dom.js";
import { renewPart } from "./parts.js";
import { toast } from "./toast.js";
import { inputValue } from "./when-fields.js";

/** How often signing in is tried, and the milliseconds in between: a gateway may take two seconds to learn of the first
 * key. */
const TRIES = 20;
const PAUSE = 250;

/** @type {Record<string, string>} what the user of a key can do in the console; a key for metrics opens no console */
const MAY = {
  read: "sees their own jobs, items and logs, and can change nothing",
  read_all: "sees the jobs, items and logs of all users, and can change nothing",
  agent: "sees their own jobs, items and logs, and can start crawls",
  crawl: "sees their own jobs, items and logs, and can start and cancel crawls",
  admin: "can do everything, for all users",
};

const scopes = () => within(document, "#field-scopes", HTMLSelectElement);

/** Budgets and projects are for some scopes only. A field that is not shown is not sent. */
function offer() {
  for (const part of allWithin(document, "#make-key [data-scopes]")) {
    const isFor = (part.dataset.scopes ?? "").split(" ").includes(JSON.parse(scopes().value)[0]);
    part.hidden = !isFor;
    for (const fields of [part, ...part.querySelectorAll("fieldset")])
      if (fields instanceof HTMLFieldSetElement) fields.disabled = !isFor;
  }
  offerProjects();
}

const which = () => document.querySelector("#field-which");
const projectTicks = () => allWithin(document, "#key-projects [type=checkbox]", HTMLInputElement);

/** Projects are ticked for “only these”, and then at least one: a key without projects sees all. */
function offerProjects() {
  const choice = which();
  const part = document.getElementById("key-projects");
  if (!(choice instanceof HTMLSelectElement) || !(part instanceof HTMLFieldSetElement)) return;
  const isSome = choice.value === "some";
  part.hidden = part.disabled = !isSome;
  const isNone = isSome && !projectTicks().some((one) => one.checked);
  projectTicks()[0]?.setCustomValidity(isNone ? "Tick at least one project." : "");
}

/**
 * Words that say what to send to the key's user, and what the user can do then.
 *
 * @param {MadeKey} made
 */
function invitation({ user_id: user, scopes: [scope = ""], projects }) {
  const may = projects.length
    ? `sees the jobs, items and logs of the project${projects.length > 1 ? "s" : ""} ${projects.join(", ")}, and can change nothing`
    : MAY[scope];
  return may ? `Send this link to ${user}: after a click on “Sign in”, ${user} ${may}.` : "";
}

document.addEventListener("key-made", async ({ detail }) => {
  byId("key-text").textContent = detail.key;
  byId("key-link").textContent = `${location.origin}/console/sign-in#${detail.key}`;
  const words = invitation(detail);
  byId("key-says").textContent = words;
  byId("invitation").hidden = !words;
  byId("new-key").hidden = false;
  byId("new-key-title").focus();
  const none = document.getElementById("no-keys");
  if (none) {
    // the page says that there are no keys, which is wrong from now on
    const words = h("p", { class: "muted", role: "status" }, "Signing in… Please stay on this page.");
    none.replaceChildren(words);
    byId("key-list").replaceChildren();
    await signIn(detail.key, TRIES);
  }
  renewPart("#key-list");
});

/** @type {(key: string, tries: number) => Promise<void>} */
async function signIn(key, tries) {
  const session = await begun(key).catch(ignoreTooEarly);
  if (session) {
    document.head.append(h("meta", { name: "csrf-token", content: session.csrf_token }));
    byId("no-keys").remove();
    // the first key had to be an administrator's, and the next ones usually are not
    for (const one of scopes().options) {
      one.defaultSelected = one.value.includes("crawl");
      one.disabled = false;
    }
    offer();
    toast("You are signed in with the new key.");
  } else if (tries > 1) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    await signIn(key, tries - 1);
  }
}

/**
 * The session that begins with the key; undefined while the gateway does not know that there are keys.
 *
 * @type {(key: string) => Promise<{ csrf_token: string } | undefined>}
 */
async function begun(key) {
  /** @type {{ key_id: string | null }} */
  const known = await api("GET /session", { headers: { Authorization: `Bearer ${key}` } });
  return known.key_id ? api("POST /session", { body: { key } }) : undefined;
}

/**
 * Ignore the refusal of a gateway process that does not know the key yet.
 *
 * @type {(error: unknown) => undefined}
 */
function ignoreTooEarly(error) {
  if (!(error instanceof ApiError && error.status === 409)) throw error;
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copy(button.getAttribute("data-copy") ?? ""));
}

/** @type {(id: string) => Promise<void>} */
async function copy(id) {
  try {
    await navigator.clipboard.writeText(byId(id).textContent ?? "");
    toast("Copied");
  } catch {
    toast("The browser blocked copying. Select the text and copy it.", "bad");
  }
}

/** Days for which a colleague's key is valid. */
const COLLEAGUE_DAYS = 90;

/** Fill in the usual values of a key for a colleague. */
function forColleague() {
  scopes().value = '["read_all"]';
  offer();
  const until = new Date(Date.now() + COLLEAGUE_DAYS * 86_400_000);
  byId("field-expires_at", HTMLInputElement).value = inputValue(until).slice(0, 16);
  byId("field-user_id").focus();
}

allWithin(document, "[data-preset]")[0]?.addEventListener("click", forColleague);
scopes().addEventListener("change", offer);
for (const one of allWithin(document, "#field-which, #key-projects")) one.addEventListener("change", offerProjects);
// a form that was reset has its first scope again, but only after the event
byId("make-key").addEventListener("reset", () => setTimeout(offer));
offer();
if (location.hash === "#colleague" && allWithin(document, "[data-preset]").length) forColleague();
