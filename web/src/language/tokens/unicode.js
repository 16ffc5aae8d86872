// The `tokenizers` package has older versions of Unicode than browsers. These are the characters whose property differs
// from Unicode 17, as ranges of hexadecimal code points.

const NORMALIZED =
  "7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1add 1ae0-1aeb 1df6-1dfa 32ff a7f1-a7f4 a82c ab69 " +
  "105c9 105e4 10781-10785 10787-107b0 107b2-107ba 10d24-10d27 10d69-10d6d 10eab-10eac 10efa-10efb " +
  "10efd-10eff 10f46-10f50 10f82-10f85 11070 1133b 11383 11385 1138e 11391 113c5 113c7-113c8 " +
  "113ce-113d0 1145e 11839-1183a 11938 1193d-1193e 11943 119e0 11a34 11a47 11a99 11d42 11d44-11d45 " +
  "11d97 11f41-11f42 16121-16128 1612f 16d68-16d6a 16ff0-16ff1 1ccd6-1ccf9 1e030-1e06d 1e08f " +
  "1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3 1e6e6 1e6ee-1e6ef 1e6f5 1f16c " +
  "1fbf0-1fbf9";
const FORMAT = "890-891 8e2 110cd 13430-1343f";
const NONSPACING =
  "7fd 897-89f 8ca-8e1 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba ece 1734 180f 1885-1886 1abf-1add " +
  "1ae0-1aeb 1df6-1dfb a82c a8c5 a8ff a9bd 10d24-10d27 10d69-10d6d 10eab-10eac 10efa-10eff 10f46-10f50 " +
  "10f82-10f85 11070 11073-11074 110c2 111c9 111cf 1123e 11241 1133b 113bb-113c0 113ce 113d0 113d2 " +
  "113e1-113e2 11438-1143f 11442-11444 11446 1145e 1171e 1182f-11837 11839-1183a 1193b-1193c 1193e " +
  "11943 119d4-119d7 119da-119db 119e0 11a01-11a0a 11a33-11a38 11a3b-11a3e 11a47 11a51-11a56 " +
  "11a59-11a5b 11a8a-11a96 11a98-11a99 11b60 11b62-11b64 11b66 11c30-11c36 11c38-11c3d 11c3f " +
  "11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47 " +
  "11d90-11d91 11d95 11d97 11ef3-11ef4 11f00-11f01 11f36-11f3a 11f40 11f42 11f5a 13440 13447-13455 " +
  "1611e-16129 1612d-1612f 16f4f 16fe4 1cf00-1cf2d 1cf30-1cf46 1e000-1e006 1e008-1e018 1e01b-1e021 " +
  "1e023-1e024 1e026-1e02a 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3 1e6e6 " +
  "1e6ee-1e6ef 1e6f5 1e944-1e94a";
const MARKS =
  "7fd 897-89f 8ca-8d3 9fe afa-aff b55 c04 c3c cf3 d00 d3b-d3c d81 eba ece 1715 180f 1abf-1add " +
  "1ae0-1aeb 1cf2-1cf3 1cf7 1df6-1dfa a82c a8ff 10d24-10d27 10d69-10d6d 10eab-10eac 10efa-10eff " +
  "10f46-10f50 10f82-10f85 11070 11073-11074 110c2 11145-11146 111c9 111ce-111cf 11241 1133b " +
  "113b8-113c0 113c2 113c5 113c7-113ca 113cc-113d0 113d2 113e1-113e2 1145e 1182c-1183a 11930-11935 " +
  "11937-11938 1193b-1193e 11940 11942-11943 119d1-119d7 119da-119e0 119e4 11a01-11a0a 11a33-11a39 " +
  "11a3b-11a3e 11a47 11a51-11a5b 11a8a-11a99 11b60-11b67 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 " +
  "11d47 11d8a-11d8e 11d90-11d91 11d93-11d97 11ef3-11ef6 11f00-11f01 11f03 11f34-11f3a 11f3e-11f42 " +
  "11f5a 13440 13447-13455 1611e-1612f 16f4f 16f7f-16f87 16fe4 16ff0-16ff1 1cf00-1cf2d 1cf30-1cf46 " +
  "1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3 1e6e6 1e6ee-1e6ef 1e6f5";
const PUNCTUATION =
  "61d 9fd a76 c77 c84 166d 1b4e-1b4f 1b7d-1b7f 2e43-2e4f 2e52-2e5d 10d6e 10ead 10ed0 10f55-10f59 " +
  "10f86-10f89 111c9 113d4-113d5 113d7-113d8 1144b-1144f 1145a-1145b 1145d 11660-1166c 116b9 1183b " +
  "11944-11946 119e2 11a3f-11a46 11a9a-11a9c 11a9e-11aa2 11b00-11b09 11be1 11c41-11c45 11c70-11c71 " +
  "11ef7-11ef8 11f43-11f4f 11fff 12ff1-12ff2 16d6d-16d6f 16e97-16e9a 16fe2 1e5ff 1e95e-1e95f";

/** Return a character class of ranges. @param {string} ranges */
function classOf(ranges) {
  const one = (/** @type {string} */ code) => `\\u{${code}}`;
  return `[${ranges
    .split(" ")
    .map((range) => range.split("-").map(one).join("-"))
    .join("")}]`;
}

/** Return a pattern of a property that is inverted for some characters. @param {string} property @param {string} ranges */
const but = (property, ranges) => `(?!${classOf(ranges)})${property}|(?!${property})${classOf(ranges)}`;

/** The control characters that BERT's normalizer removes; not line breaks and tabs. */
export const CONTROL = new RegExp(`[\\0\\ufffd]|(?![\\t\\n\\r])(?:[\\p{Cc}\\p{Co}]|${but("\\p{Cf}", FORMAT)})`, "gu");
export const NONSPACING_MARK = new RegExp(but("\\p{Mn}", NONSPACING), "gu");
export const COMBINING_MARK = new RegExp(but("\\p{M}", MARKS), "gu");
export const PUNCTUATION_MARK = new RegExp(`[!-/:-@[-\`{-~]|${but("\\p{P}", PUNCTUATION)}`, "gu");
const WITHOUT_FORM = new RegExp(`(${classOf(NORMALIZED)})`, "u");

/** Return a text in a normal form; characters that are newer than the package's Unicode are unchanged. @param {string} text @param {string} form */
export function normalForm(text, form) {
  return text
    .split(WITHOUT_FORM)
    .map((part, at) => (at % 2 ? part : part.normalize(form)))
    .join("");
}
