// Bundles whose author is not trusted: every leaf of their files replaced, paths out of the folder, texts that explode.
import assert from "node:assert/strict";
import { test } from "node:test";
import { chooseVariant } from "../src/device.js";
import { WebpteError } from "../src/errors.js";
import { Files } from "../src/files.js";
import { Tokenizer } from "../src/language/tokenizer.js";
import { readManifest } from "../src/manifest.js";
import { fetchOrRead } from "../src/node/platform.js";
import { Plan } from "../src/plan.js";
import { compile } from "../src/terms.js";
import { bundle, FakeServer, FakeStore, manifestBytes } from "./support/bundle.js";
import { documentOf } from "./support/plan.js";
import { byteLevel, characters } from "./support/tokenizers.js";

const BASE = new URL("https://a.example/site/manifest.json");
const SHA = "0".repeat(64);
const VALUES = [
  ...[null, true, -1, 0, 1, 3, 2 ** 31, 2 ** 40, 1e308, 0.5, "", "x", "constructor", "__proto__", "../../etc/passwd"],
  ...[[], [0], [[[]]], {}, { a: 1 }, { type: "Sequence" }, Array(1000).fill(1)],
];

/** Every way to a part of a document. */
function* ways(value, way = []) {
  yield way;
  if (typeof value !== "object" || value === null) return;
  for (const key of Object.keys(value).slice(0, Array.isArray(value) ? 3 : 40)) yield* ways(value[key], [...way, key]);
}

function replaced(document, way, value) {
  if (!way.length) return value;
  const copy = structuredClone(document);
  const holder = way.slice(0, -1).reduce((inner, step) => inner[step], copy);
  holder[way.at(-1)] = value;
  return copy;
}

/** Use every mutant of a document. Errors must be of this package. */
function useMutants(document, use) {
  let refused = 0;
  for (const way of ways(document)) {
    for (const value of VALUES) {
      try {
        use(replaced(document, way, value));
      } catch (error) {
        assert.ok(error instanceof WebpteError, `${way.join(".")} = ${JSON.stringify(value)}: ${error.stack}`);
        refused++;
      }
    }
  }
  return refused;
}

const encode = (document) => new TextEncoder().encode(JSON.stringify(document));
const limits = { info: {}, features: new Set(), limits: {} };
const MANIFEST = {
  sha256: SHA,
  format: "webpte bundle",
  version: 2,
  name: "m",
  kind: "program",
  files: { [SHA]: { bytes: 5, type: "plan", path: `files/${SHA}.json` } },
  methods: {
    forward: { inputs: [], outputs: [], variants: [{ plan: SHA, weights: [SHA], limits: {}, features: [] }] },
  },
};

test("a manifest with any part replaced is read or refused with an error of this package", async () => {
  const refused = useMutants(MANIFEST, (document) => {
    const manifest = readManifest(encode(document));
    chooseVariant(manifest, "forward", null, /** @type {any} */ (limits));
  });
  assert.ok(refused > 100);
  for (const name of ["constructor", "__proto__"]) {
    const choose = () => chooseVariant(readManifest(encode(MANIFEST)), name, null, /** @type {any} */ (limits));
    assert.throws(choose, { code: "input" });
  }
});

test("a plan with any part replaced is opened or refused with an error of this package", () => {
  const refused = useMutants(documentOf(), (document) => {
    const plan = new Plan(/** @type {any} */ (document));
    if (plan.document.schedules[0]?.slots) compile(plan.document.schedules[0].slots[0]?.[1] ?? 0);
  });
  assert.ok(refused > 50);
});

test("a tokenizer with any part replaced is used or refused with an error of this package", () => {
  for (const document of [characters(["<s>"]), byteLevel([["a", "b"]])]) {
    document.model.vocab = Object.fromEntries(Object.entries(document.model.vocab).slice(0, 130));
    useMutants(document, (changed) => new Tokenizer(changed));
  }
});

test("files outside of the bundle's folder are not requested", async () => {
  const asked = [];
  const outside = [
    ...["file:///etc/hostname", "data:,internal", "http://127.0.0.1:1/admin", "//other.example/x", "../x", "/x"],
    ...[
      "https://a.example/sitex/y",
      "https://a.example:444/site/x",
      "https://u@a.example/site/x",
      "%2e%2e/x",
      "blob:x",
    ],
  ];
  for (const path of outside) {
    const body = await manifestBytes({ files: { [SHA]: { bytes: 5, type: "plan", path } } });
    const fetch = (url, options) => {
      asked.push(url.href);
      return url.href === BASE.href ? Promise.resolve(new Response(body)) : fetchOrRead(url, options);
    };
    const files = new Files(BASE, /** @type {any} */ (new FakeStore()), () => {}, fetch);
    await files.open();
    await assert.rejects(files.bytes(SHA), { code: "damaged" }, path);
  }
  assert.deepEqual(new Set(asked), new Set([BASE.href]));
});

test("sizes of files are safe integers within the budget", async () => {
  for (const bytes of [2 ** 40, 2 ** 28 + 1, -1, 0.5, "5", null, Number.MAX_SAFE_INTEGER]) {
    const body = await manifestBytes({ files: { [SHA]: { bytes, type: "plan", path: "a" } } });
    assert.throws(() => readManifest(body), { code: "damaged" });
  }
});

test("names that every object has are not names of files, methods and terms", async () => {
  const { bodies } = await bundle({ "a.bin": "hello" });
  const files = new Files(BASE, /** @type {any} */ (new FakeStore()), () => {}, new FakeServer(bodies).fetch);
  await files.open();
  for (const name of ["constructor", "toString", "__proto__", "hasOwnProperty"]) {
    await assert.rejects(files.bytes(name), { code: "damaged" });
    assert.throws(() => compile([name, 1]), { code: "damaged" });
    assert.throws(() => compile(name), { code: "damaged" });
  }
  let deep = /** @type {any} */ (1);
  for (let i = 0; i < 100_000; i++) deep = ["neg", deep];
  assert.throws(() => compile(deep), { code: "damaged" });
});

const split = (Regex) => ({ type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false });

test("expressions that can take exponential time are refused", () => {
  const refused = [
    "(a+)+$",
    "(a|a)*$",
    "(?:a*)*",
    "(a?){30}",
    "((a|b)c)+",
    "a*a*a*a*a*$",
    "(?:a*b*c*){2}",
    "(?:x(y+))+",
  ];
  for (const each of refused) {
    assert.throws(() => new Tokenizer({ ...characters(), pre_tokenizer: split(each) }), { code: "unsupported" }, each);
    const normalizer = { type: "Replace", pattern: { Regex: each }, content: "x" };
    assert.throws(() => new Tokenizer({ ...characters(), normalizer }), { code: "unsupported" }, each);
  }
});

test("expressions of published tokenizers are accepted", () => {
  const published = [
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}]*[\\p{Ll}\\p{Lm}]+(?i:'s|'t)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s+",
    "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))",
    "'s|'t|'re| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
  ];
  for (const each of published) assert.ok(new Tokenizer({ ...characters(), pre_tokenizer: split(each) }).encode("a 1"));
});

test("a tokenizer that makes texts many times as long is refused", () => {
  const grow = { type: "Replace", pattern: { String: "a" }, content: "aaaaaaaaaa" };
  const pieces = Array(40).fill({ Sequence: { id: "A", type_id: 0 } });
  const bombs = [
    { normalizer: { type: "Sequence", normalizers: [grow, grow] } },
    { normalizer: { type: "Prepend", prepend: "a".repeat(2000) } },
    { normalizer: { type: "Replace", pattern: { String: "" }, content: "x" } },
    { normalizer: { type: "Sequence", normalizers: Array(65).fill({ type: "Lowercase" }) } },
    { decoder: { type: "Sequence", decoders: [grow, grow] } },
    { post_processor: { type: "TemplateProcessing", single: pieces, pair: [], special_tokens: {} } },
  ];
  for (const bomb of bombs) assert.throws(() => new Tokenizer({ ...characters(), ...bomb }), { code: "unsupported" });
});
