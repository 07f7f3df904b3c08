// Takes the key of an invitation's link. It is behind the `#`, so no server and no log ever gets it; and nobody is signed
// in without pressing the button, for a link might be somebody else's.
import { byId } from "./dom.js";

const KEY = /^#(db_\w+)$/;

function fillIn() {
  const key = KEY.exec(location.hash)?.[1];
  if (!key) return;
  // so that the key is not in the browser's history
  history.replaceState(null, "", location.pathname + location.search);
  const field = /** @type {HTMLInputElement} */ (byId("key"));
  field.value = key;
  field.form?.querySelector("button")?.focus();
}

addEventListener("hashchange", fillIn);
fillIn();
