// Builds the player as bundles carry it, out of src and vendor: `npm ci && npm run player`.
// With --check it writes nothing: it compares the build with the committed files, byte by byte (`npm run check-build`).
// Minified, because every visitor loads these files.
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = new URL(".", import.meta.url);
const { outputFiles } = await build({
  absWorkingDir: fileURLToPath(new URL("..", here)), // the names of parts depend on it
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
  write: false,
});
const built = new Map(outputFiles.map(({ path, contents }) => [basename(path), contents]));
const committed = readdirSync(here).filter((name) => name.endsWith(".js"));

if (process.argv.includes("--check")) {
  const differs = [...new Set([...built.keys(), ...committed])].sort().flatMap((name) => {
    const contents = built.get(name);
    if (!contents) return [`${name}: not part of the build`];
    if (!committed.includes(name)) return [`${name}: missing`];
    return readFileSync(new URL(name, here)).equals(contents) ? [] : [`${name}: differs`];
  });
  if (differs.length) {
    const list = differs.map((line) => `  player/${line}`).join("\n");
    console.error(`The committed player is not the build of its sources:\n${list}\nRun \`npm run player\` in web/.`);
    process.exitCode = 1;
  }
} else {
  for (const name of committed) rmSync(new URL(name, here));
  for (const [name, contents] of built) writeFileSync(new URL(name, here), contents);
}
