import assert from "node:assert/strict";
import { test } from "node:test";
import { encodePrompt, specialTokens, TextStream, Tokenizer } from "../src/language/tokenizer.js";
import { byteLevel, characters } from "./support/tokenizers.js";

const codes = (text) => [...text].map((character) => character.charCodeAt(0));

test("characters become their tokens and back", () => {
  const tokenizer = new Tokenizer(characters());
  assert.deepEqual(tokenizer.encode("a b!"), codes("a b!"));
  assert.equal(tokenizer.decode(codes("a b!")), "a b!");
  assert.deepEqual([tokenizer.encode(""), tokenizer.decode([])], [[], ""]);
});

test("special tokens are recognised in a text and left out of one", () => {
  const tokenizer = new Tokenizer(characters(["<s>", "</s>"]));
  assert.deepEqual(tokenizer.encode("<s>a</s>"), [128, 97, 129]);
  assert.equal(tokenizer.decode([128, 97, 129]), "a");
  assert.deepEqual([...tokenizer.specials], [128, 129]);
  assert.deepEqual([tokenizer.id("</s>"), tokenizer.text(129), tokenizer.text(500)], [129, "</s>", undefined]);
});

test("a special token may contain any character, and is text in a message", () => {
  const names = ["<global-img>", "<a|b>", "[c]", "(d)*", "e\\f", "^$.+?{}/"];
  const tokenizer = new Tokenizer(characters(names));
  for (const name of names) {
    assert.equal(tokenizer.encode(name).length, 1);
    assert.deepEqual(tokenizer.encodeMarked(tokenizer.addMarks(name)), codes(name));
  }
});

test("a text with half a surrogate pair is refused", () => {
  const tokenizer = new Tokenizer(characters());
  for (const text of ["\ud83d", "a\udc00b", 5, null]) {
    assert.throws(() => tokenizer.encode(/** @type {any} */ (text)), { code: "input" });
  }
});

test("byte-level: any text survives, merged tokens are used", () => {
  const tokenizer = new Tokenizer(
    byteLevel([
      ["t", "h"],
      ["th", "e"],
    ]),
  );
  assert.deepEqual(tokenizer.encode("the"), [257]);
  for (const text of ["naïve 北京", "👩‍👩‍👧 \ufeff", "\x00\x7f\r\n", "e\u0301"]) {
    const tokens = tokenizer.encode(text);
    assert.equal(tokens.length, new TextEncoder().encode(text).length);
    assert.equal(tokenizer.decode(tokens), text);
  }
});

test("byte-level: the bytes of a token are those of its text", () => {
  const tokenizer = new Tokenizer(byteLevel([["t", "h"]]));
  for (let byte = 0; byte < 256; byte++) assert.deepEqual([...tokenizer.bytes(byte)], [byte]);
  assert.deepEqual([...tokenizer.bytes(256)], codes("th"));
  assert.equal(tokenizer.bytes(999), null);
});

test("a character that spans tokens comes out when it is whole", () => {
  const stream = new TextStream(new Tokenizer(byteLevel()));
  const pieces = [..."a北b"].flatMap((c) => [...new TextEncoder().encode(c)]).map((token) => stream.push(token));
  assert.deepEqual(pieces, ["a", "", "", "北", "b"]);
  assert.equal(stream.flush(), "");
});

test("bytes that never become a character come out at the end, once", () => {
  const stream = new TextStream(new Tokenizer(byteLevel()));
  assert.equal(stream.push(0xe5), "");
  assert.equal(stream.push(0x8c), "");
  assert.match(stream.flush(), /^\ufffd+$/);
  assert.equal(stream.flush(), "");
});

test("special tokens come from the config, or from the program's own numbers", () => {
  const tokenizer = new Tokenizer(characters(["<s>", "</s>", "<pad>"]));
  const config = { bos_token: { content: "<pad>" }, add_bos_token: true, model_max_length: 5, unk_token: null };
  const special = specialTokens(tokenizer, config, { eos_token_ids: [65], bos_token_id: 128 });
  assert.deepEqual(special.texts, { bos_token: "<pad>", eos_token: "A" });
  assert.deepEqual([...special.ends].sort(), [129, 65]); // </s> ends answers of every model that has it
  assert.equal(special.addBos, true);
  const bare = specialTokens(tokenizer, null, { eos_token_ids: [], bos_token_id: 128 });
  assert.deepEqual([bare.texts, bare.addBos], [{ bos_token: "<s>" }, false]);
});

test("a prompt begins with one BOS, whether the text has it already or not", () => {
  const tokenizer = new Tokenizer(characters(["<s>"]));
  const special = (config) => specialTokens(tokenizer, config, { eos_token_ids: [], bos_token_id: 128 });
  assert.deepEqual(encodePrompt(tokenizer, special({ add_bos_token: true }), "ab"), [128, 97, 98]);
  assert.deepEqual(encodePrompt(tokenizer, special({ add_bos_token: true }), "<s>ab", true), [128, 97, 98]);
  assert.deepEqual(encodePrompt(tokenizer, special({}), "ab"), [97, 98]);
  assert.deepEqual(encodePrompt(tokenizer, special({}), "<s><s>ab", true), [128, 97, 98]);
  assert.deepEqual(encodePrompt(tokenizer, special({ add_bos_token: true }), "<s>"), [128, 60, 115, 62]);
});
