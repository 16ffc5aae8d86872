import assert from "node:assert/strict";
import { test } from "node:test";
import { abortable, packError, throwIfAborted, unpackError, WebpteError, within } from "../src/errors.js";

const never = new Promise(() => {});

test("an error keeps its code across threads", () => {
  const packed = structuredClone(packError(new WebpteError("shape", "no such shape")));
  const error = unpackError(packed);
  assert.ok(error instanceof WebpteError);
  assert.deepEqual([error.code, error.message, error.name], ["shape", "no such shape", "WebpteError"]);
});

test("other errors keep name and message, and get no code", () => {
  const error = unpackError(packError(new TypeError("x is not a function")));
  assert.deepEqual([error.name, error.message], ["TypeError", "x is not a function"]);
  assert.equal("code" in error, false);
  assert.equal(unpackError(packError("a string")).message, "a string");
});

test("throwIfAborted reports the signal's reason as the cause", () => {
  throwIfAborted(null);
  throwIfAborted(new AbortController().signal);
  const reason = new Error("left the page");
  assert.throws(
    () => throwIfAborted(AbortSignal.abort(reason)),
    (/** @type {any} */ error) => error.code === "aborted" && error.cause === reason,
  );
});

test("abortable passes results and errors on", async () => {
  const { signal } = new AbortController();
  assert.equal(await abortable(Promise.resolve(3), signal), 3);
  await assert.rejects(abortable(Promise.reject(new Error("own")), signal), /own/);
  const promise = Promise.resolve(1);
  assert.equal(abortable(promise, null), promise);
});

test("abortable ends with the signal, before or meanwhile", async () => {
  await assert.rejects(abortable(never, AbortSignal.abort()), { code: "aborted" });
  const stop = new AbortController();
  const waiting = abortable(never, stop.signal);
  stop.abort();
  await assert.rejects(waiting, { code: "aborted" });
});

test("within ends a promise that takes too long", async () => {
  assert.equal(await within(Promise.resolve(3), 5), 3);
  await assert.rejects(within(Promise.reject(new Error("own")), 5), /own/);
  const keepAlive = setTimeout(() => {}, 1000);
  await assert.rejects(within(never, 5), /stalled/);
  clearTimeout(keepAlive);
});
