import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { Progress } from "../src/progress.js";

let now = 0;
beforeEach(() => {
  now = 1000;
  mock.method(performance, "now", () => now);
});

const recorded = () => {
  const events = [];
  return { events, progress: new Progress((event) => events.push(event)) };
};

test("events come at most every 50 ms, and always at the end", () => {
  const { events, progress } = recorded();
  progress.weights.total = 100;
  for (let done = 0; done < 100; done += 10, now += 20) progress.add("weights", 10);
  assert.deepEqual(
    events.map(({ done }) => done),
    [10, 40, 70, 100],
  );
});

test("the time left is that of the pace so far, once half a second has passed", () => {
  const { events, progress } = recorded();
  progress.weights.total = 100;
  progress.add("weights", 10);
  now += 400;
  progress.add("weights", 10);
  now += 600;
  progress.add("weights", 5, 5);
  assert.deepEqual(
    events.map(({ secondsLeft }) => secondsLeft),
    [null, null, 3],
  );
  assert.equal(events[2].cached, 5);
});

test("a damaged file is named, and does not look like progress", () => {
  const { events, progress } = recorded();
  progress.reportDamaged("a.bin");
  assert.deepEqual(events, [
    { stage: "weights", done: 0, total: 0, cached: 0, secondsLeft: null, damagedFile: "a.bin" },
  ]);
});

test("a recovery starts from zero, reports bytes only, and ends with ready", () => {
  const { events, progress } = recorded();
  progress.weights.total = 10;
  progress.add("weights", 10);
  progress.restart();
  progress.weights.total = 10;
  progress.kernels.total = 1;
  progress.add("compile", 1);
  now += 100;
  progress.add("weights", 10);
  progress.reportDamaged("a.bin");
  progress.ready();
  assert.deepEqual(
    events.map(({ stage, done }) => [stage, done]),
    [
      ["weights", 10],
      ["recover", 0],
      ["recover", 10],
      ["recover", 10],
      ["ready", 10],
    ],
  );
  progress.add("compile", 1);
  assert.equal(events.at(-1).stage, "compile");
});

test("without a listener nothing fails", () => {
  const progress = new Progress();
  progress.add("weights", 1);
  progress.restart();
  progress.ready();
});
