// onnxruntime-web behind the bench's questions. Keys and values stay on the GPU; the logits are read, as its users do.
import * as ort from "/npm/onnxruntime-web/dist/ort.webgpu.min.mjs";

ort.env.wasm.wasmPaths = "/npm/onnxruntime-web/dist/";
ort.env.wasm.numThreads = 1; // more need cross-origin isolation, and the work is the GPU's
ort.env.logLevel = "error";
const ARRAYS = { int32: Int32Array, float32: Float32Array };

let about, session, feeds;

/** Loads the model and its inputs. */
export async function open(folder) {
  about = await (await fetch(`${folder}/about.json`)).json();
  const preferredOutputLocation = { [about.output]: "cpu" };
  for (const name of about.kept) preferredOutputLocation[name] = "gpu-buffer";
  session = await ort.InferenceSession.create(`${folder}/model.onnx`, {
    executionProviders: ["webgpu"],
    externalData: [{ path: "model.data", data: `${folder}/model.data` }],
    preferredOutputLocation,
  });
  feeds = {};
  for (const [name, { dtype, dims }] of Object.entries(about.inputs)) {
    const bytes = await (await fetch(`${folder}/${name}.bin`)).arrayBuffer();
    feeds[name] = new ort.Tensor(dtype, new ARRAYS[dtype](bytes), dims);
  }
  return { version: ort.env.versions.web };
}

/** Nothing comes before the calls that count: keys and values of earlier tokens are inputs. */
export async function begin() {}

/** The output of the inputs as given, and `count` greedy tokens behind it where there is a cache: milliseconds each. */
export async function run(count) {
  const times = [];
  const tokens = [];
  let given = feeds;
  let output;
  for (let i = 0; i <= count; i++) {
    const began = performance.now();
    const found = await session.run(given);
    const values = found[about.output].data;
    const token = best(values);
    times.push(performance.now() - began);
    output ??= Array.from(values);
    tokens.push(token);
    const after = next(given, found, token);
    if (after !== given) dispose(given);
    given = after;
  }
  dispose(given);
  return { times, tokens, output };
}

function next(given, found, token) {
  if (!given.total) {
    for (const name of about.kept) found[name].dispose();
    return given;
  }
  const total = given.total.data[0] + 1;
  const after = { ids: [token], last: [total - 1], total: [total] };
  const tensors = Object.entries(after).map(([name, data]) => [name, new ort.Tensor("int32", Int32Array.from(data), [1])]);
  const cache = about.kept.map((name) => [name.replace("new_", ""), found[name]]);
  return Object.fromEntries([...tensors, ...cache]);
}

/** Frees what this page made on the GPU; the inputs on the host stay. */
function dispose(given) {
  for (const [name, tensor] of Object.entries(given)) if (tensor !== feeds[name]) tensor.dispose();
}

function best(values) {
  let found = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[found]) found = i;
  return found;
}
