// Shows a key that was just made, once: it is in the page alone, until that is left.
import { byId } from "./dom.js";
import { toast } from "./toast.js";

document.addEventListener("key-made", ({ detail }) => {
  byId("key-text").textContent = detail.key;
  byId("new-key").hidden = false;
  byId("new-key-title").focus();
});

byId("copy-key").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(byId("key-text").textContent ?? "");
    toast("Copied");
  } catch {
    toast("The browser blocked copying. Select the key and copy it.", "bad");
  }
});
