// The worker that all tabs share: it holds their streams.
import { Hub } from "./stream-hub.js";

// the worker's name ends with the session that it is for
const hub = new Hub(self.name.split("-").at(-1) ?? "");

self.addEventListener("connect", (event) => {
  const port = /** @type {MessagePort} */ (/** @type {MessageEvent} */ (event).ports[0]);
  /** @type {import("./stream-hub.js").Member} */
  const member = { send: (message) => port.postMessage(message) };
  port.onmessage = ({ data }) => {
    // a tab holds a lock of this name for as long as it lives, and a tab that crashes says nothing
    if (data.type === "hello") navigator.locks?.request(data.lock, () => hub.hear(member, { type: "bye" }));
    else hub.hear(member, data);
  };
});
