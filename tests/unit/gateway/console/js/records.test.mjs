import assert from "node:assert/strict";
import { test } from "node:test";
import { countsOf, pictures, rate } from "../../../../../gateway/console/static/js/curves.js";
import { Pages } from "../../../../../gateway/console/static/js/data-pages.js";
import { isNested, isNumber, isObject, parse, valueAt } from "../../../../../gateway/console/static/js/record.js";
import { rangeWords } from "../../../../../gateway/console/static/js/table-words.js";

test("a field with a dot in its name goes before one in an object", () => {
  const record = { "seller.name": "a", seller: { name: "b", "x.y": 1 }, list: [1] };
  assert.equal(valueAt(record, "seller.name"), "a");
  assert.equal(valueAt(record, "seller.x.y"), 1);
  for (const path of ["seller.none", "list.0", "toString", "constructor.name", ""]) assert.equal(valueAt(record, path), undefined);
});

test("kinds of values", () => {
  assert.deepEqual([null, [], {}, "a", 1].map(isObject), [false, false, true, false, false]);
  assert.deepEqual([null, [], {}, "a", 1].map(isNested), [false, true, true, false, false]);
  assert.deepEqual([null, "1", 1].map(isNumber), [false, false, true]);
});

test("integers beyond 53 bits stay as they are, where this Node.js can keep them", () => {
  const { small, large, real } = parse('{"small": 12, "large": 12345678901234567890, "real": 1.5}');
  assert.equal(small, 12);
  assert.equal(real, 1.5);
  assert.equal(JSON.stringify(large), JSON.rawJSON ? "12345678901234567890" : "12345678901234567000");
});

test("pages know how many records come before them", async () => {
  const answers = { undefined: [50, "b"], b: [0, "c"], c: [20, "d"], d: [0, null] };
  const pages = new Pages((after) => {
    const [length, next] = answers[after];
    return Promise.resolve({ records: Array(length).fill({}), next, searched: 100 });
  });
  assert.equal((await pages.load(0)).length, 50);
  assert.equal(await pages.load(1), null, "a page of a search that has found nothing yet");
  assert.equal((await pages.load(1)).length, 20);
  assert.deepEqual([0, 1, 2].map((number) => pages.first(number)), [0, 50, 70]);
  assert.equal((await pages.load(2)).length, 0);
  assert.equal(pages.has(2), false, "nothing came after all");
  assert.equal(pages.searched, 400);
});

test("what a table says that it shows", () => {
  const shown = { first: 0, last: 50, isAll: false };
  assert.equal(rangeWords(shown, null), "1–50 of 50 or more");
  assert.equal(rangeWords(shown, "1200"), "1–50 of 1,200");
  assert.equal(rangeWords({ ...shown, isAll: true }, "1200"), "1–50 of 50");
  assert.equal(rangeWords({ first: 0, last: 0, isAll: true }, null), "");
  assert.equal(rangeWords({ ...shown, searched: 900 }, null), "50 found, 900 searched");
  assert.equal(rangeWords({ first: 0, last: 0, isAll: true, searched: 9 }, null), "None found, all searched");
});

const curve = (at, completed) => ({
  at: at.map((seconds) => new Date(seconds * 1000).toISOString()),
  requested_pages: completed.map((number) => number + 5),
  completed_pages: completed,
  items_count: completed,
  errors_count: completed.map(() => 1),
  answered_2xx: completed,
});

test("attempts stand one after the other, with a gap between them", () => {
  const curves = [curve([10, 12], [0, 6]), curve([], []), curve([20, 21], [6, 4])].map(countsOf);
  const { pace, queue, errors, answers } = pictures(curves, false);
  assert.deepEqual(pace.at, [10, 12, 19.999, 20, 21]);
  assert.deepEqual(pace.lines[0], { name: "pages", colour: undefined, values: [null, 3, null, null, 0] });
  assert.deepEqual(queue.lines[0].values, [4, 4, null, 4, 4]);
  assert.deepEqual(queue.lines[1].values, [1, 7, null, 7, 5]);
  assert.deepEqual(errors.lines[0].values, [1, 1, null, 1, 1]);
  assert.deepEqual(answers.lines.map(({ name }) => name), ["2xx", "3xx", "4xx", "5xx"]);
});

test("what a crawl has left behind at its end waits no more", () => {
  const curves = [countsOf(curve([10, 12], [0, 6]))];
  assert.deepEqual(pictures(curves, true).queue.lines[0].values, [4, 0]);
});

test("a count that an older server does not know is none", () => {
  assert.equal(rate("answered_4xx")(countsOf(curve([10, 12], [0, 6])), 1), 0);
});
