// Calls methods of a bundle on a GPU's matrix units: jobs arrive as JSON, and their results leave as JSON.
import { text } from "node:stream/consumers";
import { load } from "../../../web/src/node/index.js";

const halves = (data) => (globalThis.Float16Array && data instanceof globalThis.Float16Array ? Float32Array.from(data) : data);
const encoded = ({ data, dims }) => {
  const array = halves(data);
  return { dims, data: Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64") };
};
const decoded = ({ data, dims }) => ({ dims, data: new Float32Array(new Uint8Array(Buffer.from(data, "base64")).buffer) });

const { folder, calls } = JSON.parse(await text(process.stdin));
const model = await load(folder, { worker: false, matrixUnits: true });
const results = [];
for (const { method, inputs } of calls) {
  results.push((await model.run(inputs.map(decoded), { method })).map(encoded));
}
model.dispose();
process.stdout.write(`\n${JSON.stringify({ adapter: model.adapter, results })}`, () => process.exit(0)); // Dawn writes there, too
