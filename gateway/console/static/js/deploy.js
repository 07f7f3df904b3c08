// The form that deploys an egg. While nodes install what the project depends on, it says what they do; then it sends the
// same again, which is answered with what came of it.
import { api } from "./api.js";
import { shown } from "./text.js";

const LOOK = 1500;

document.addEventListener("deployed", async ({ target: form, detail }) => {
  if (!detail.dependencies_url) {
    location.assign(`/console/projects/${encodeURIComponent(detail.project)}`);
    return;
  }
  const said = form.querySelector("output");
  said.hidden = false;
  for (let nodes = await building(detail); nodes.length; nodes = await building(detail)) {
    form.querySelector("button").disabled = true;
    said.textContent = nodes.map(({ node, log }) => `${shown(node)}: ${shown(last(log))}`).join("; ");
    await new Promise((go) => setTimeout(go, LOOK));
  }
  form.querySelector("button").disabled = false;
  said.hidden = true;
  form.requestSubmit();
});

const last = (log) => log.trimEnd().split("\n").pop() || "waits for its turn";

/** Nodes that are still at it; none if nobody knows, as after a node's restart. */
async function building({ dependencies_url }) {
  const { nodes } = await api(`GET ${dependencies_url}`).catch(() => ({ nodes: [] }));
  return nodes.filter(({ state }) => state === "building");
}
