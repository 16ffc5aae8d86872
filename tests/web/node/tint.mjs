// Validates WGSL, a JSON list of texts, by Tint for a device that has every feature: Dawn's backend without a GPU.
import { text } from "node:stream/consumers";
import { create, globals } from "../../../web/node_modules/webgpu/index.js";

Object.assign(globalThis, globals);
const gpu = create(["backend=null", "enable-dawn-features=allow_unsafe_apis"]);
const adapter = await gpu.requestAdapter();
const requiredFeatures = ["shader-f16", "subgroups", "chromium-experimental-subgroup-matrix"];
const device = await adapter.requestDevice({ requiredFeatures });
device.onuncapturederror = () => {}; // messages have it
const results = [];
for (const code of JSON.parse(await text(process.stdin))) {
  const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
  results.push(messages.map(({ type, lineNum, message }) => `${type}, line ${lineNum}: ${message}`));
}
process.stdout.write(`\n${JSON.stringify(results)}`, () => process.exit(0)); // Dawn writes there, too
