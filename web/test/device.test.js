import assert from "node:assert/strict";
import { test } from "node:test";
import { chooseVariant, describe, requestAdapter, requestDevice } from "../src/device.js";
import { withGPU } from "./support/gpu.js";

/** @returns {any} */
const adapterOf = ({ info = {}, features = [], limits = {} } = {}) => ({
  info: { vendor: "acme", architecture: "rdna", description: "", device: "X1", ...info },
  features: new Set(features),
  limits: { maxBufferSize: 1000, ...limits },
  asked: [],
  async requestDevice(options) {
    this.asked.push(options);
    return "device";
  },
});
const variant = (name, changes = {}) => ({
  plan: name,
  device: "gpu",
  limits: {},
  features: [],
  min_subgroup_size: 0,
  cache_slots: null,
  ...changes,
});
/** @returns {any} */
const manifestOf = (...variants) => ({ name: "m", methods: { forward: { variants } } });
const chosen = (manifest, adapter, slots = null) => chooseVariant(manifest, "forward", slots, adapter).plan;

test("software adapters are known by name or by the browser's own word", () => {
  assert.equal(describe(adapterOf()).software, false);
  assert.equal(describe(adapterOf({ info: { description: "llvmpipe (LLVM 15)" } })).software, true);
  assert.equal(describe(adapterOf({ info: { architecture: "swiftshader" } })).software, true);
  assert.equal(describe(adapterOf({ info: { isFallbackAdapter: true } })).software, true);
  assert.deepEqual(describe(adapterOf({ features: ["b", "a"] })).features, ["a", "b"]);
  assert.equal(describe(adapterOf()).description, "X1");
});

test("the first variant that the adapter can run is chosen", () => {
  const manifest = manifestOf(
    variant("subgroups", { features: ["subgroup"], min_subgroup_size: 32 }),
    variant("f16", { features: ["shader-f16"] }),
    variant("plain"),
  );
  assert.equal(chosen(manifest, adapterOf()), "plain");
  assert.equal(chosen(manifest, adapterOf({ features: ["shader-f16"] })), "f16");
  assert.equal(chosen(manifest, adapterOf({ features: ["subgroups"], info: { subgroupMinSize: 16 } })), "plain");
  assert.equal(chosen(manifest, adapterOf({ features: ["subgroups"], info: { subgroupMinSize: 32 } })), "subgroups");
});

test("matrix units are used if they have the shape, f16 with sums in f32, and no wide subgroups", async () => {
  const features = ["shader-f16", "subgroups", "chromium-experimental-subgroup-matrix"];
  const config = { componentType: "f16", resultComponentType: "f32", M: 8, N: 16, K: 16 };
  const offering = (configs, subgroupMaxSize = 32) =>
    adapterOf({ features, info: { subgroupMinSize: 32, subgroupMaxSize, subgroupMatrixConfigs: configs } });
  const manifest = manifestOf(
    variant("matrices", { features: ["shader-f16", "subgroup", "subgroup-matrix-8x16x16"] }),
    variant("plain"),
  );
  const adapter = offering([{ ...config, componentType: "i8" }, config]);
  assert.equal(chosen(manifest, adapter), "matrices");
  assert.equal(chosen(manifest, offering([config], 64)), "matrices");
  assert.equal(chosen(manifest, offering([config], 128)), "plain");
  assert.equal(chosen(manifest, offering([{ ...config, M: 16 }])), "plain");
  assert.equal(chosen(manifest, offering([{ ...config, resultComponentType: "f16" }])), "plain");
  assert.equal(chosen(manifest, adapterOf({ features })), "plain");
  await requestDevice(manifest, adapter);
  assert.deepEqual(adapter.asked[0].requiredFeatures, features);
  const [without] = manifest.methods.forward.variants;
  assert.throws(() => chosen(manifestOf(without), adapterOf()), { message: /subgroup-matrix-8x16x16/ });
});

test("variants for the CPU are for software adapters only, and come first there", () => {
  const manifest = manifestOf(variant("gpu"), variant("cpu", { device: "cpu" }));
  assert.equal(chosen(manifest, adapterOf()), "gpu");
  assert.equal(chosen(manifest, adapterOf({ info: { isFallbackAdapter: true } })), "cpu");
});

test("a number of sequences selects among variants", () => {
  const manifest = manifestOf(variant("one", { cache_slots: 1 }), variant("four", { cache_slots: 4 }));
  assert.equal(chosen(manifest, adapterOf(), 4), "four");
  assert.throws(() => chosen(manifest, adapterOf(), 2), { code: "unsupported", message: /2 concurrent sequences/ });
});

test("what is lacking is named with both numbers", () => {
  const manifest = manifestOf(variant("large", { limits: { "max-buffer-size": 4000 }, features: ["shader-f16"] }));
  assert.throws(() => chosen(manifest, adapterOf()), {
    code: "unsupported",
    message: /shader-f16, maxBufferSize 4000 \(it has 1000\)/,
  });
  assert.throws(() => chooseVariant(manifest, "backward", null, adapterOf()), {
    code: "input",
    message: /method of .*: expected forward, got "backward"/,
  });
});

test("a device is asked for what the usable variants need, and for no more", async () => {
  const adapter = adapterOf({ features: ["subgroups"], info: { subgroupMinSize: 32 } });
  const manifest = manifestOf(
    variant("a", { limits: { "max-buffer-size": 500 }, features: ["subgroup"] }),
    variant("b", { limits: { "max-buffer-size": 800 } }),
    variant("c", { limits: { "max-buffer-size": 9999 }, features: ["shader-f16"] }),
  );
  assert.equal(await requestDevice(manifest, adapter), "device");
  const [{ requiredFeatures, requiredLimits }] = adapter.asked;
  assert.deepEqual([requiredFeatures, requiredLimits], [["subgroups"], { maxBufferSize: 800 }]);
  adapter.requestDevice = async () => {
    throw new Error("gone");
  };
  await assert.rejects(requestDevice(manifest, adapter), { code: "no-adapter", message: /gone/ });
});

test("a missing WebGPU and a missing adapter have codes of their own", async () => {
  await assert.rejects(requestAdapter(), { code: "webgpu-missing" });
  await withGPU({ requestAdapter: async () => null }, () => assert.rejects(requestAdapter(), { code: "no-adapter" }));
});
