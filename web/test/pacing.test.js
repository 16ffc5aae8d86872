import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Pace } from "../src/pacing.js";

/** Dispatches that a slow device needs `ms` each for. */
const scheduleOf = (count, ms) => /** @type {any} */ ({ work: Array(count).fill([ms * 1e7, 0]) });

/** The ends of all parts, on a device that needs `factor` times as long as a slow one. */
function ends(pace, schedule, clock, factor) {
  const found = [];
  for (let begin = 0; begin < schedule.work.length; begin = found.at(-1)) {
    const { end } = pace.part(schedule, begin);
    const began = clock.now;
    clock.now += ((end - begin) * schedule.work[0][0] * factor) / 1e7;
    pace.learn(schedule, begin, end, began);
    found.push(end);
  }
  return found;
}

function withClock(body) {
  const clock = { now: 1000 };
  const mocked = mock.method(performance, "now", () => clock.now);
  try {
    body(clock);
  } finally {
    mocked.mock.restore();
  }
}

test("a prefill of two seconds is at least 40 submits, and the first is an eighth of the limit", () => {
  withClock((clock) => {
    const pace = new Pace(50);
    const schedule = scheduleOf(1000, 2);
    const found = ends(pace, schedule, clock, 1);
    assert.equal(found[0], 3); // 6 ms
    assert.ok(found.length >= 40, `${found.length}`);
    assert.equal(found.at(-1), 1000);
    found.slice(1).forEach((end, i) => assert.ok((end - found[i]) * 2 <= 50));
  });
});

test("a device that is slower than predicted gets smaller submits, a faster one larger ones", () => {
  withClock((clock) => {
    const slower = ends(new Pace(50), scheduleOf(200, 1), clock, 10);
    assert.equal(slower[0], 6);
    assert.ok(slower.slice(1).every((end, i) => (end - slower[i]) * 10 <= 50));
    const pace = new Pace(50);
    const schedule = scheduleOf(200, 1);
    ends(pace, schedule, clock, 0.01);
    assert.equal(pace.part(schedule, 0).end, 200); // 2 ms in all
  });
});

test("a dispatch is never cut, and without a limit nothing is", () => {
  const schedule = scheduleOf(3, 1000);
  assert.deepEqual(new Pace(50).part(schedule, 0), { end: 1, known: false });
  assert.equal(new Pace(Infinity).part(schedule, 0).end, 3);
});
