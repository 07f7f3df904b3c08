// The event `tick` on the page's body, every five seconds while the page is visible, for parts that have no stream.
import { isAway } from "./connection.js";

const SECONDS = 5;

const tick = () => document.hidden || isAway() || document.body.dispatchEvent(new CustomEvent("tick"));
setInterval(tick, SECONDS * 1000);
document.addEventListener("visibilitychange", tick);
