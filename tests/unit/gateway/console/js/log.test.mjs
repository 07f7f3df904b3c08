import assert from "node:assert/strict";
import { test } from "node:test";
import { push } from "../../../../../gateway/console/static/js/log-fold.js";
import { atLeast, compare, linesBefore, partWith, position } from "../../../../../gateway/console/static/js/log-positions.js";
import { LogSegments } from "../../../../../gateway/console/static/js/log-segments.js";
import { barOf, rowAt, windowOf } from "../../../../../gateway/console/static/js/rows-window.js";

test("positions are in the order of attempts, then of bytes", () => {
  const sorted = ["2-0", "1-20480", "1-9", "10-1"].map(position).sort(compare);
  assert.deepEqual(sorted, [[1, 9], [1, 20_480], [2, 0], [10, 1]]);
});

test("lines before a position are counted with the one that ends there", () => {
  const lines = ["1-10", "1-20", "1-30", "2-5"].map((id) => ({ id }));
  const counts = ["1-9", "1-10", "1-29", "1-30", "2-4", "3-0"].map((id) => linesBefore(lines, position(id)));
  assert.deepEqual(counts, [0, 1, 2, 3, 3, 4]);
  assert.equal(linesBefore([], [1, 1]), 0);
});

test("a row is in the last part that begins at it or before it", () => {
  const parts = [0, 500, 501, 1001].map((first) => ({ first }));
  assert.deepEqual([0, 499, 500, 501, 1000, 1001, 9999].map((row) => partWith(parts, row)), [0, 0, 1, 2, 2, 3, 3]);
  assert.equal(partWith([], 5), 0);
});

test("levels are in their order", () => {
  assert.ok(atLeast("CRITICAL", "ERROR") && atLeast("INFO", "INFO") && !atLeast("DEBUG", "INFO"));
});

const SIGHT = { first: 0, above: 0, count: 100_000, height: 20, room: 600 };

test("of a hundred thousand rows those around the ones in sight exist", () => {
  assert.deepEqual(windowOf(SIGHT, 20, false), [0, 42]);
  assert.deepEqual(windowOf({ ...SIGHT, first: 50_000 }, 20, false), [49_988, 50_042]);
  assert.deepEqual(windowOf({ ...SIGHT, first: 50_000, above: -300 }, 20, false), [49_973, 50_042]);
});

test("at the end a whole box of rows exists", () => {
  assert.deepEqual(windowOf({ ...SIGHT, first: 99_999 }, 20, true), [99_958, 100_000]);
  assert.deepEqual(windowOf({ ...SIGHT, first: 99_999 }, 20, false), [99_958, 100_000]);
  assert.deepEqual(windowOf({ ...SIGHT, count: 3 }, 20, true), [0, 3]);
  assert.deepEqual(windowOf({ ...SIGHT, count: 0 }, 20, false), [0, 0]);
});

test("a share of the scroll bar is a row, and the bar's place is that share", () => {
  assert.deepEqual(rowAt(0, SIGHT), [0, 0]);
  assert.deepEqual(rowAt(1, SIGHT), [99_970, 0]);
  for (const share of [0.1, 0.25, 0.5, 0.999]) {
    const [first, above] = rowAt(share, SIGHT);
    const [length, top] = barOf({ ...SIGHT, first, above }, false);
    assert.ok(Math.abs(top / (length - SIGHT.room) - share) < 1e-5, `${share}`);
  }
});

test("what is scrolled through has an end, and only the list's ends are the bar's", () => {
  assert.deepEqual(barOf({ ...SIGHT, count: 10_000_000 }, false), [8_000_000, 0]);
  assert.deepEqual(barOf({ ...SIGHT, first: 99_970 }, true), [2_000_000, 1_999_400]);
  assert.deepEqual(barOf({ ...SIGHT, first: 99_970 }, false), [2_000_000, 1_999_398]);
  assert.deepEqual(barOf({ ...SIGHT, above: 0.1 }, false), [2_000_000, 1]);
  assert.deepEqual(barOf({ ...SIGHT, count: 3 }, true), [600, 0]);
});

test("segments know which row is where, and an attempt begins with a row of its own", () => {
  const segments = new LogSegments();
  for (const [attempt, start, end, lines] of [[1, 0, 100, 10], [1, 100, 300, 5], [2, 0, 50, 3]]) segments.add(attempt, start, end, lines);
  assert.equal(segments.count, 19);
  assert.deepEqual([0, 9, 10, 14, 16, 99].map((row) => segments.with(row)?.first), [0, 0, 10, 10, 16, 16]);
  assert.deepEqual(segments.with(15)?.note, { attempt: 2 });
  assert.equal(segments.at([1, 101])?.first, 10);
  assert.equal(segments.at([2, 51]), undefined);
});

test("a segment that has other lines than were counted moves what follows", () => {
  const segments = new LogSegments();
  const first = segments.add(1, 0, 100, 10);
  segments.note({ gap: ["1-100", "1-200"] }, 1);
  const last = segments.add(1, 200, 300, 1);
  segments.resize(first, 4);
  assert.deepEqual([last.first, segments.count], [5, 6]);
  segments.grow(last);
  assert.deepEqual([segments.count, segments.hasLines], [7, true]);
  segments.clear();
  assert.deepEqual([segments.count, segments.hasLines, segments.last], [0, false, undefined]);
});

test("a position is a share of the rows: by lines where they were read, else by bytes", () => {
  const segments = new LogSegments();
  const first = segments.add(1, 0, 100, 10);
  segments.add(1, 100, 300, 10);
  const unread = () => undefined;
  assert.deepEqual([0, 50, 100, 200, 300].map((byte) => segments.share([1, byte], unread)), [0, 0.25, 0.5, 0.75, 1]);
  const lines = [{ id: "1-90" }, { id: "1-100" }];
  assert.equal(segments.share([1, 90], (segment) => (segment === first ? lines : undefined)), 1 / 20);
});

const NAMES = { "scrapy.addons": "setup", "scrapy.crawler": "setup", "scrapy.statscollectors": "statistics" };

/** @type {(lines: object[]) => (string | [number, string])[]} */
function folded(lines) {
  const rows = [];
  const grown = lines.filter((line, place) =>
    push(rows, { id: `1-${10 * (place + 1)}`, start: 10 * place, level: "INFO", logger: "shop", ...line }, NAMES),
  );
  assert.equal(grown.length, rows.length);
  return rows.map((row) => (row.folded ? [row.folded, row.part] : row.msg));
}

test("Scrapy's setup is one row, and its statistics are another", () => {
  const setup = [
    { logger: "scrapy.addons", msg: "Enabled addons:" },
    { logger: "scrapy.addons", msg: "[]", cont: true },
    { logger: "scrapy.crawler", level: "DEBUG", msg: "Overridden settings:" },
    { logger: "scrapy.crawler", msg: "{'BOT_NAME': 'shop',", cont: true },
    { logger: "scrapy.crawler", msg: " 'LOG_LEVEL': 'INFO'}", cont: true },
  ];
  const statistics = [
    { logger: "scrapy.statscollectors", msg: "Dumping Scrapy stats:" },
    { logger: "scrapy.statscollectors", msg: "{}", cont: true },
  ];
  assert.deepEqual(folded([...setup, { msg: "a page" }, ...statistics]), [[5, "setup"], "a page", [2, "statistics"]]);
  assert.deepEqual(folded([...setup, ...statistics]), [[5, "setup"], [2, "statistics"]]);
});

test("one line of it stays, and so does what a spider prints or raises between", () => {
  const head = { logger: "scrapy.addons", msg: "Enabled addons:" };
  const raised = ["Traceback (most recent call last):", "  File spider.py", "ValueError: no price"];
  const lines = [head, ...raised.map((msg) => ({ logger: "scrapy.addons", msg, cont: true }))];
  assert.deepEqual(folded(lines), ["Enabled addons:", ...raised]);
  const warned = { ...head, level: "WARNING", msg: "an old add-on" };
  assert.deepEqual(folded([head, warned, head]), ["Enabled addons:", "an old add-on", "Enabled addons:"]);
});

test("a row of folded lines begins where the first does and ends where the last does", () => {
  const rows = [];
  for (const place of [0, 1, 2]) push(rows, { id: `1-${place + 1}`, start: place, level: "INFO", logger: "scrapy.addons", msg: "a" }, NAMES);
  assert.deepEqual([rows[0].start, rows[0].id], [0, "1-3"]);
});
