// Writes the vendored modules out of what the lockfile pins: `npm ci && npm run vendor`. A test compares.
import { copyFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = new URL(".", import.meta.url);
const used = { tokenizers: "Tokenizer" };
for (const [name, exports] of Object.entries(used)) {
  const package_ = new URL(`../node_modules/@huggingface/${name}/`, here);
  await build({
    stdin: {
      contents: `export { ${exports} } from "@huggingface/${name}"`,
      resolveDir: fileURLToPath(new URL("..", here)),
    },
    outfile: fileURLToPath(new URL(`${name}.js`, here)),
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
  });
  copyFileSync(new URL("LICENSE", package_), new URL(`${name}.LICENSE`, here));
}
