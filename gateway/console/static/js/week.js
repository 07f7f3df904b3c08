// The week in the user's own zone.
const mine = document.getElementById("mine");
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (mine instanceof HTMLAnchorElement && zone && zone !== "UTC") {
  const url = new URL(location.href);
  const isShown = url.searchParams.get("zone") === zone;
  url.searchParams.set("zone", zone);
  mine.href = url.pathname + url.search;
  mine.textContent = `Mine (${zone})`;
  mine.hidden = false;
  if (isShown) {
    mine.setAttribute("aria-current", "true");
    document.getElementById("named")?.remove();
  }
}
