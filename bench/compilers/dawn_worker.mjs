// As worker.py, with Dawn, which lets kernels use matrix units: `node dawn_worker.mjs < kernels.json 2> reports`.
import { writeSync } from "node:fs";
import { text } from "node:stream/consumers";
import { create, globals } from "../../web/node_modules/webgpu/index.js";

const FEATURES = ["shader-f16", "subgroups", "chromium-experimental-subgroup-matrix"];
const COMPUTE = 4;

Object.assign(globalThis, globals);
const mark = (line) => writeSync(2, `\n@@ ${line}\n`);
// Dawn offers f16 on NVIDIA's GPUs only if it is told to.
const gpu = create(["backend=vulkan", "enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia"]);
const adapter = await gpu.requestAdapter();
const { info, limits, features } = adapter;
const requiredFeatures = FEATURES.filter((name) => features.has(name));
const { maxComputeWorkgroupStorageSize, maxStorageBuffersPerShaderStage } = limits;
const requiredLimits = { maxComputeWorkgroupStorageSize, maxStorageBuffersPerShaderStage };
const device = await adapter.requestDevice({ requiredFeatures, requiredLimits });

const layout = (types) => {
  const entries = types.map((type, binding) => ({ binding, visibility: COMPUTE, buffer: { type } }));
  return device.createBindGroupLayout({ entries });
};

for (const [number, kernel] of JSON.parse(await text(process.stdin)).entries()) {
  mark(`begin ${number}`);
  device.pushErrorScope("validation");
  const storage = [...Array(kernel.reads).fill("read-only-storage"), ...Array(kernel.writes).fill("storage")];
  const bindGroupLayouts = [layout(["uniform", "uniform"]), layout(storage)];
  device.createComputePipeline({
    layout: device.createPipelineLayout({ bindGroupLayouts }),
    compute: {
      module: device.createShaderModule({ code: kernel.text }),
      entryPoint: "main",
      constants: { wg: kernel.workgroup },
    },
  });
  const error = await device.popErrorScope();
  if (error) mark(`error ${error.message.replaceAll(/\s+/g, " ")}`);
  mark("end");
}
const configs = [...(info.subgroupMatrixConfigs ?? [])].map(({ componentType, resultComponentType, M, N, K }) => {
  return [componentType, resultComponentType, M, N, K];
});
const adapterInfo = { device: info.device || info.description, backend: "Vulkan", configs, features: requiredFeatures };
process.stdout.write(`\n${JSON.stringify(adapterInfo)}`, () => process.exit(0)); // Dawn writes there, too
