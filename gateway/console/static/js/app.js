// The parts that every page has.
import "./act.js";
import "./cards.js";
import "./shortcuts.js";
import "./status.js";
import "./ticks.js";
import "./times.js";
import "./toast.js";
