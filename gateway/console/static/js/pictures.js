// Pictures that a crawl has written: each can be seen large, and one that is no picture says so.
import { h } from "./text.js";

function isBroken(picture) {
  return picture.complete && !picture.naturalWidth;
}

function sayBroken(picture) {
  picture.replaceWith(h("p", {}, "This file is no picture that a browser can show"));
}

function showLarge(picture, address) {
  const name = picture.alt;
  const large = h("img", { src: picture.src, alt: name });
  const close = h("button", { class: "button", autofocus: true }, "Close");
  const buttons = h(
    "form",
    { method: "dialog", class: "buttons" },
    h("a", { class: "button", href: address, download: true }, "Download"),
    close,
  );
  const dialog = h(
    "dialog",
    { class: "large", "aria-label": name },
    h("div", { class: "dialog" }, large, h("p", {}, h("bdi", {}, name)), buttons),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

for (const link of document.querySelectorAll(".picture .frame")) {
  const picture = link.querySelector("img");
  if (isBroken(picture)) sayBroken(picture);
  picture.addEventListener("error", () => sayBroken(picture));
  link.addEventListener("click", (event) => {
    if (!picture.isConnected || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    showLarge(picture, link.href);
  });
}
