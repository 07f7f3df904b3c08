// Shows a key that was just made, once: it is in the page alone, until that is left. From the first key on the console
// takes one: this browser is signed in with it, or the next call would lead away from the page that shows it.
import { ApiError, api } from "./api.js";
import { byId, h, within } from "./dom.js";
import { renewPart } from "./parts.js";
import { toast } from "./toast.js";

/** How often, and how many milliseconds apart, it is tried: a gateway may take two seconds to hear of the first key. */
const TRIES = 20;
const PAUSE = 250;

document.addEventListener("key-made", async ({ detail }) => {
  byId("key-text").textContent = detail.key;
  byId("key-link").textContent = `${location.origin}/console/sign-in#${detail.key}`;
  byId("new-key").hidden = false;
  byId("new-key-title").focus();
  if (document.getElementById("no-keys")) await signIn(detail.key, TRIES);
  renewPart("#key-list");
});

/** @type {(key: string, tries: number) => Promise<void>} */
async function signIn(key, tries) {
  const session = await begun(key).catch(ignoreTooEarly);
  if (session) {
    document.head.append(h("meta", { name: "csrf-token", content: session.csrf_token }));
    byId("no-keys").remove();
    // the first key had to be an administrator's; those that follow seldom are
    const scopes = within(document, "#field-scopes", HTMLSelectElement);
    for (const one of scopes.options) one.defaultSelected = one.value.includes("crawl");
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
 * Another process of the gateway may answer, which has not heard of the key yet.
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
