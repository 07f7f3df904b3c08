import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, clock, exact, nextRun } from "../../../../../gateway/console/static/js/moments.js";
import { marks } from "../../../../../gateway/console/static/js/scatter-marks.js";
import { zoneOf } from "../../../../../gateway/console/static/js/zones.js";

const NOW = Date.UTC(2027, 5, 1, 9, 0, 0);
const after = (seconds) => new Date(NOW + seconds * 1000);

test("how long ago, and in how long", () => {
  const told = [-9, -10, -59, -60, -3599, -86_400, 9, 10, 7200].map((seconds) => ago(after(seconds), NOW));
  assert.deepEqual(told, ["now", "10 s ago", "59 s ago", "1 min ago", "59 min ago", "1 d ago", "now", "in 10 s", "in 2 h"]);
});

test("a time in the user's zone", () => {
  assert.equal(exact(new Date(NOW)), "2027-06-01 09:00:00 UTC");
  assert.equal(clock(after(3600), NOW), "Tue 10:00");
  assert.equal(clock(after(7 * 86_400), NOW), "2027-06-08 09:00");
});

test("midnight is the hour 0", () => {
  assert.equal(exact(new Date(Date.UTC(2027, 5, 1))), "2027-06-01 00:00:00 UTC");
});

test("the next run in the schedule's zone and in the user's own", () => {
  const due = new Date(Date.UTC(2027, 5, 1, 22, 30));
  assert.equal(nextRun(due, null, "UTC"), "Next run: Tuesday 1 June at 22:30, in your time zone (UTC).");
  assert.equal(nextRun(due, "UTC", "UTC"), "Next run: Tuesday 1 June at 22:30, in your time zone (UTC).");
  assert.equal(
    nextRun(due, "Europe/Paris", "America/New_York"),
    "Next run: Wednesday 2 June at 00:30 in Europe/Paris. In your time zone (America/New_York) that is Tuesday 1 June at 18:30.",
  );
  assert.equal(
    nextRun(due, "Europe/Paris", "Europe/Berlin"),
    "Next run: Wednesday 2 June at 00:30 in Europe/Paris, and at the same time in your time zone (Europe/Berlin).",
  );
});

test("a zone is found by a city", () => {
  const found = ["Paris", " munich", "new york", "europe/paris", "Europe/Pari", "", "nowhere"].map((text) => zoneOf(text));
  assert.deepEqual(found, ["Europe/Paris", "Europe/Berlin", "America/New_York", "Europe/Paris", undefined, undefined, undefined]);
});

for (const [seconds, most, wanted] of [
  [10, 4, ["09:00:00", "09:00:05"]],
  [3600, 4, ["09:00", "09:15", "09:30", "09:45"]],
  [86_400 * 3, 4, ["2 Jun", "3 Jun", "4 Jun"]],
  [86_400 * 400, 3, ["3 Jan"]],
]) {
  test(`an axis over ${seconds} s has round times, and at most ${most}`, () => {
    const found = [...marks(NOW, NOW + seconds * 1000, most)];
    assert.ok(found.length <= most + 1);
    if (seconds < 86_400 * 100) assert.deepEqual(found.map(([, words]) => words), wanted);
    for (const [time] of found) assert.ok(time >= NOW && time < NOW + seconds * 1000);
  });
}
