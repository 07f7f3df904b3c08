// The ways between the tabs of a job: from a page of the crawl to its request, to its items, and to its lines in the log.
import { h } from "./dom.js";

const TABS = { requests: "Request", items: "Items", log: "Log lines" };
const HERE = /^\/console\/jobs\/[0-9a-f]{32}\/(requests|items|log)$/;
const PAGE = /https?:\/\/[^\s<>"']+/i;
/** The most characters of a text to search for. */
const LONGEST = 200;

/**
 * Links to the other tabs, each with a search for the first address in the text; null where there is none.
 *
 * @param {string} text
 */
export function jobPlaces(text) {
  const here = HERE.exec(location.pathname)?.[1];
  const page = PAGE.exec(text)?.[0];
  if (!here || !page) return null;
  const links = Object.entries(TABS)
    .filter(([tab]) => tab !== here)
    .map(([tab, words]) => {
      const address = new URL(location.pathname.replace(/[a-z]+$/, tab), location.href);
      const user = new URLSearchParams(location.search).get("user_id");
      if (user) address.searchParams.set("user_id", user);
      address.searchParams.set("q", page.slice(0, LONGEST));
      address.hash = "tab";
      return h("a", { class: "button small quiet", href: address.pathname + address.search + address.hash }, words);
    });
  return h("span", { class: "row" }, ...links);
}

/**
 * The address of the page that a record is about: its field `url`, otherwise the first address in the record.
 *
 * @param {Record<string, unknown>} record
 */
export function pageOf(record) {
  const texts = [record.url, ...Object.values(record)].filter((value) => typeof value === "string");
  return texts.find((text) => PAGE.exec(text)?.index === 0) ?? "";
}
