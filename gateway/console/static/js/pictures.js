// Pictures that a crawl has written: each can be seen large, and one that is no picture says so.
import { allWithin, h, within } from "./dom.js";

/** @param {HTMLImageElement} picture */
function isBroken(picture) {
  return picture.complete && !picture.naturalWidth;
}

/** @param {HTMLImageElement} picture */
function sayBroken(picture) {
  picture.replaceWith(h("p", {}, "This file cannot be shown as an image"));
}

/** @type {(picture: HTMLImageElement, address: string) => void} */
function showLarge(picture, address) {
  const name = picture.alt;
  const large = h("img", { src: picture.src, alt: name });
  const close = h("button", { class: "button", autofocus: true }, "Close");
  const link = h("a", { class: "button", href: address, download: true }, "Download");
  const buttons = h("form", { method: "dialog", class: "buttons" }, link, close);
  const dialog = h(
    "dialog",
    { class: "large", "aria-label": name },
    h("div", { class: "dialog" }, large, h("p", {}, h("bdi", {}, name)), buttons),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

for (const link of allWithin(document, ".picture .frame", HTMLAnchorElement)) {
  const picture = within(link, "img", HTMLImageElement);
  if (isBroken(picture)) sayBroken(picture);
  picture.addEventListener("error", () => sayBroken(picture));
  link.addEventListener("click", (event) => {
    if (!picture.isConnected || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    showLarge(picture, link.href);
  });
}
