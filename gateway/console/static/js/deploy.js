// The form that deploys an egg. While nodes install what the project depends on, it shows their progress; then it sends the
// same request again, and the answer has the outcome.
import { api } from "./api.js";
import { within } from "./dom.js";
import { shown } from "./text.js";

/** @typedef {{ node: string, log: string, state: string }} Building what a node does for the project */

const LOOK = 1500;

document.addEventListener("deployed", async ({ target: form, detail }) => {
  const { project, dependencies_url: address } = detail;
  if (!address) {
    location.assign(`/console/projects/${encodeURIComponent(project)}`);
    return;
  }
  if (!(form instanceof HTMLFormElement)) return;
  const said = within(form, "output");
  const button = within(form, "button", HTMLButtonElement);
  said.hidden = false;
  for (let nodes = await building(address); nodes.length; nodes = await building(address)) {
    button.disabled = true;
    said.textContent = nodes.map(({ node, log }) => `${shown(node)}: ${shown(last(log))}`).join("; ");
    await new Promise((go) => setTimeout(go, LOOK));
  }
  button.disabled = false;
  said.hidden = true;
  form.requestSubmit();
});

/** @param {string} log */
const last = (log) => log.trimEnd().split("\n").pop() || "queued";

/**
 * Nodes that are still installing; none if that is not known, as after a node's restart.
 *
 * @param {string} address
 */
async function building(address) {
  /** @type {{ nodes: Building[] }} */
  const { nodes } = await api(`GET ${address}`).catch(() => ({ nodes: [] }));
  return nodes.filter(({ state }) => state === "building");
}
