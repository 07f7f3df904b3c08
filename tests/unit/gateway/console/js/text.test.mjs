import assert from "node:assert/strict";
import { test } from "node:test";
import { pieces } from "../../../../../gateway/console/static/js/text-search.js";
import { count, duration, shown, size } from "../../../../../gateway/console/static/js/text.js";

test("controls, invisible characters and half pairs are escapes", () => {
  assert.equal(shown("a\nb\tc\u0000\u202e\ufeff"), "a\\nb\\tc\\x00\\u202e\\ufeff");
  assert.equal(shown("\ud83d"), "\\ud83d");
  assert.equal(shown("\ud83d\ude00"), "\ud83d\ude00");
  assert.equal(shown("\ude00\ud83d"), "\\ude00\\ud83d");
});

test("a long text is cut, and says so", () => {
  assert.equal(shown("abcdef", 3), "abc…");
  assert.equal(shown("abc", 3), "abc");
  assert.equal(shown(12), "12");
});

test("a duration has two units at most", () => {
  const told = [null, -1, 0, 0.04, 0.05, 9.94, 10, 59.6, 3600, 7509, 86_400, 90_061].map((one) => duration(one));
  const wanted = ["–", "0 s", "0 s", "0 s", "0.1 s", "9.9 s", "10 s", "1 min", "1 h", "2 h 5 min", "1 d", "1 d 1 h"];
  assert.deepEqual(told, wanted);
});

test("a size has three digits at most", () => {
  const told = [undefined, 0, 999, 1000, 1550, 99_900, 100_000, 999_500, 1e15, 1e19].map((one) => size(one));
  assert.deepEqual(told, ["–", "0 B", "999 B", "1.0 kB", "1.6 kB", "99.9 kB", "100 kB", "1.0 MB", "1.0 PB", "10000 PB"]);
});

test("a number has its thousands apart", () => {
  assert.deepEqual([null, 0, 12_345, 1.25].map(count), ["–", "0", "12,345", "1.3"]);
});

test("a text is found whatever its case", () => {
  assert.deepEqual(pieces("Error: no ERROR", "error"), ["", "Error", ": no ", "ERROR", ""]);
  assert.deepEqual(pieces("nothing", "error"), ["nothing"]);
  assert.deepEqual(pieces("nothing", ""), ["nothing"]);
  assert.deepEqual(pieces("aaaa", "aa"), ["", "aa", "", "aa", ""]);
});

test("a text whose lower case is longer is left whole", () => {
  assert.deepEqual(pieces("İ error", "error"), ["İ error"]);
});

test("a text of one letter a thousand times is marked two hundred pieces long", () => {
  const found = pieces("x".repeat(1000), "x");
  assert.equal(found.length, 201);
  assert.equal(found.join(""), "x".repeat(1000));
});
