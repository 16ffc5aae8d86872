// A page's part in the tests, outside pages: evaluates functions that arrive as lines, and writes their results as lines.
import { createInterface } from "node:readline";

globalThis.player = new URL("../../../web/src/node/index.js", import.meta.url).href;
const evaluate = globalThis.eval; // in the global scope

/** JSON has neither integers of 64 bits nor NaN and infinities: they are written as {"$": text}. */
const pack = (_, value) =>
  typeof value === "bigint" || (typeof value === "number" && !Number.isFinite(value)) ? { $: String(value) } : value;

async function answer(line) {
  const { code, arg } = JSON.parse(line);
  try {
    const found = evaluate(`(${code})`);
    return { value: (await (typeof found === "function" ? found(evaluate(`(${arg})`)) : found)) ?? null };
  } catch (error) {
    return { error: String(error.stack ?? error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(line), pack)}\n`);
}
process.exit(0); // a model may still be open
