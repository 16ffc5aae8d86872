// Writes the player as bundles carry it, out of src and vendor: `npm ci && npm run player`. A test compares.
// Names and spaces that only people need are most of its bytes, and every visitor loads them.
import { readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = new URL(".", import.meta.url);
const web = new URL("..", here);

for (const name of readdirSync(here)) if (name.endsWith(".js")) rmSync(new URL(name, here));
await build({
  absWorkingDir: fileURLToPath(web), // of which the names of parts depend
  entryPoints: ["src/index.js", "src/worker.js"],
  outdir: "player",
  chunkNames: "part-[hash]",
  bundle: true,
  splitting: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
});
