// Small tokenizers of the kinds that language models have, as tokenizer.json describes them.

/** One token for each ASCII character; with added tokens, as 128 and on. */
export const characters = (added = []) => ({
  added_tokens: added.map((content, at) => ({ id: 128 + at, content, special: true })),
  normalizer: null,
  pre_tokenizer: { type: "Split", pattern: { Regex: "[\\s\\S]" }, behavior: "Isolated", invert: false },
  post_processor: null,
  decoder: { type: "Fuse" },
  model: {
    type: "WordLevel",
    vocab: Object.fromEntries([
      ...Array.from({ length: 128 }, (_, i) => [String.fromCharCode(i), i]),
      ...added.map((content, at) => [content, 128 + at]),
    ]),
    unk_token: "?",
  },
});

/** Visible characters for all bytes, as byte-level tokenizers write them. */
export function byteAlphabet() {
  let hidden = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const visible = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(visible ? byte : hidden++);
  });
}

/** Byte-level BPE: a token for each byte, by its number, and some merged ones from 256 on. */
export function byteLevel(merges = []) {
  const vocab = Object.fromEntries(byteAlphabet().map((text, byte) => [text, byte]));
  merges.forEach(([one, other], at) => {
    vocab[one + other] = 256 + at;
  });
  return {
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
    post_processor: null,
    decoder: { type: "ByteLevel" },
    model: { type: "BPE", vocab, merges },
  };
}
