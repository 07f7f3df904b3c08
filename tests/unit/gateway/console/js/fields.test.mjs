import assert from "node:assert/strict";
import { test } from "node:test";
import { empty, FieldError, filled, put, read } from "../../../../../gateway/console/static/js/fields.js";
import { intervalOf, isAgain, recognised } from "../../../../../gateway/console/static/js/intervals.js";

test("a field is read as what it is", () => {
  assert.equal(read("1.5", "number"), 1.5);
  assert.equal(read("false", "boolean"), false);
  assert.deepEqual(read('{"a": [1]}', "json"), { a: [1] });
  assert.deepEqual(read(" a \n\n b\n", "lines"), ["a", "b"]);
  assert.equal(read("2027-06-01T09:00:00", "time"), "2027-06-01T09:00:00.000Z");
  assert.equal(read(" as it is "), " as it is ");
});

test("pairs are JSON or text, and texts are text", () => {
  assert.deepEqual({ ...read("a=1\nb = x=y\nc=", "pairs") }, { a: 1, b: " x=y", c: "" });
  assert.deepEqual({ ...read("a=1\nb=null", "texts") }, { a: "1", b: "null" });
});

for (const [text, kind] of [["{", "json"], ["no pair", "pairs"], ["=nameless", "texts"], ["soon", "time"]]) {
  test(`${JSON.stringify(text)} is no ${kind}`, () => assert.throws(() => read(text, kind)));
}

test("a dot leads into an object, once", () => {
  const body = empty();
  put(body, "spider", "seo");
  put(body, "params.a.b", 1);
  put(body, "tags", "x");
  put(body, "tags", "y");
  put(body, "start_urls", ["u"]);
  put(body, "start_urls", ["v"]);
  assert.equal(JSON.stringify(body), '{"spider":"seo","params":{"a.b":1},"tags":["x","y"],"start_urls":["v"]}');
});

test("no name reaches what all objects have", () => {
  const body = empty();
  put(body, "params.constructor", 1);
  put(body, "toString", 2);
  assert.equal(JSON.stringify(body), '{"params":{"constructor":1},"toString":2}');
  for (const name of ["__proto__", "params.__proto__"])
    assert.throws(() => put(body, name, 1), (error) => error instanceof FieldError && error.field === name);
  assert.deepEqual(read("__proto__=1", "pairs"), Object.assign(empty(), JSON.parse('{"__proto__": 1}')));
});

test("an address takes values as parts of it", () => {
  const values = { id: "a/b?", job: { id: 7 }, none: null };
  assert.equal(filled("GET /jobs/{id}/{job.id}/{none}/{else}/{toString}", values), "GET /jobs/a%2Fb%3F/7///");
});

const FIELDS = { kind: "cron", every: "15m", time: "09:05", day: "1" };
for (const [kind, interval] of [
  ["daily", "5 9 * * *"],
  ["weekdays", "5 9 * * MON-FRI"],
  ["weekly", "5 9 * * 1"],
  ["every", "every 15m"],
]) {
  test(`${interval} is written and recognised`, () => {
    assert.equal(intervalOf({ ...FIELDS, kind }), interval);
    assert.equal(intervalOf({ ...FIELDS, ...recognised(interval) }), interval);
    assert.ok(isAgain(kind));
  });
}

test("what the form cannot write is left to whoever writes it", () => {
  for (const text of ["", "*/5 * * * *", "0 9 1 * *", "@daily", "0 9 * * 7"]) assert.deepEqual(recognised(text), {});
  for (const kind of ["cron", "now", "once"]) assert.equal(intervalOf({ ...FIELDS, kind }), undefined);
  assert.deepEqual(["now", "once"].map(isAgain), [false, false]);
  assert.equal(intervalOf({ ...FIELDS, kind: "daily", time: "" }), "0 0 * * *");
});
