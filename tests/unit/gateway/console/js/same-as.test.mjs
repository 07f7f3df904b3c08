import assert from "node:assert/strict";
import { test } from "node:test";
import { commandLine, curl, json, python, word } from "../../../../../gateway/console/static/js/same-as.js";

const ASKED = { origin: "http://gateway:8001", path: "/crawl", body: { spider: "seo", params: { q: "it's" } }, withKey: true };

test("a word of a shell is quoted where it needs to be", () => {
  assert.deepEqual(["a-b.c/d", "", "it's", "a b", "$HOME"].map(word), ["a-b.c/d", "''", "'it'\\''s'", "'a b'", "'$HOME'"]);
});

test("what cannot be seen is escaped in JSON", () => {
  assert.equal(json({ a: "\u202e\u0007é" }), '{"a":"\\u202e\\u0007é"}');
  assert.equal(json([1], 1), "[\n 1\n]");
});

test("a request in three languages", () => {
  assert.match(curl(ASKED), /^curl -sS http:\/\/gateway:8001\/crawl \\\n {2}-H "Authorization: Bearer \$DISCOVERYBOT_KEY"/);
  assert.ok(curl(ASKED).endsWith(`--data-raw '{"spider":"seo","params":{"q":"it'\\''s"}}'`));
  assert.match(python({ ...ASKED, body: { a: null, b: [true, {}], c: {} } }), /json=\{\n {8}"a": None,\n {8}"b": \[\n {12}True,\n {12}\{\},\n/);
  assert.deepEqual(commandLine(ASKED).text.split(" \\\n  "), [
    "discoverybot crawl seo",
    `--params='{"q":"it'\\''s"}'`,
    "--url=http://gateway:8001",
  ]);
});

test("the command line says what it has no option for", () => {
  const body = { spider: "seo", start_urls: ["http://a/"], interval: "every 15m", tags: ["x y"], settings: { A: 1 }, other: 1 };
  const { text, without } = commandLine({ ...ASKED, body });
  assert.deepEqual(without, ["other"]);
  assert.match(text, /crawl seo \\\n {2}http:\/\/a\/ \\\n {2}--every=15m \\\n {2}'?--tag='x y' \\\n {2}--setting=A=1/);
});
