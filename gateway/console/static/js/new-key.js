// Shows a key that was just made, once: it is in the page alone, until that is left.
import { toast } from "./toast.js";

document.addEventListener("key-made", ({ detail }) => {
  document.getElementById("key-text").textContent = detail.key;
  document.getElementById("new-key").hidden = false;
  document.getElementById("new-key-title").focus();
});

document.getElementById("copy-key").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(document.getElementById("key-text").textContent);
    toast("Copied.");
  } catch {
    toast("The browser does not let this page copy: mark the key, and copy it.", "bad");
  }
});
