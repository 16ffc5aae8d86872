import assert from "node:assert/strict";
import { test } from "node:test";
import { sha256 } from "../src/hash.js";
import { isIntact, manifestURL, readManifest } from "../src/manifest.js";
import { manifestBytes } from "./support/bundle.js";

test("sha256 has the digests of FIPS 180-2", async () => {
  const hash = (text) => sha256(new TextEncoder().encode(text));
  assert.equal(await hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  assert.equal(await hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
});

test("a folder, a page and a manifest lead to the same manifest", () => {
  const site = "https://a.example/site/";
  for (const url of ["https://a.example/site", site, `${site}index.html`, `${site}manifest.json`]) {
    assert.equal(manifestURL(url).href, `${site}manifest.json`);
  }
  assert.equal(manifestURL("https://a.example/s?v=1#top").pathname, "/s/manifest.json");
  assert.equal(manifestURL(new URL("https://a.example/other.json")).href, "https://a.example/other.json");
});

test("a manifest is whole if its first hash is that of the rest", async () => {
  const bytes = await manifestBytes({ name: "a" });
  assert.equal(await isIntact(bytes), true);
  for (const at of [0, 20, bytes.length - 2]) {
    const damaged = bytes.slice();
    damaged[at] ^= 1;
    assert.equal(await isIntact(damaged), false, `byte ${at}`);
  }
  assert.equal(await isIntact(bytes.slice(0, -1)), false);
  assert.equal(await isIntact(new Uint8Array(0)), false);
});

test("manifests of other formats and versions are refused", async () => {
  assert.equal(readManifest(await manifestBytes({ name: "a" })).name, "a");
  const [earlier, other] = [await manifestBytes({ version: 1 }), await manifestBytes({ format: "zip" })];
  assert.throws(() => readManifest(earlier), {
    code: "unsupported",
    message: /of version 2, got .* of version 1.*webpte bundle/,
  });
  assert.throws(() => readManifest(other), { code: "unsupported", message: /a zip of/ });
});
