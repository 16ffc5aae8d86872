import assert from "node:assert/strict";
import { test } from "node:test";
import { Automaton, bytes, choice, Lazy, NOTHING, repeat, sequence, text } from "../src/language/automaton.js";
import { GrammarMatcher, Vocabulary } from "../src/language/grammar_matcher.js";
import { compileSchema } from "../src/language/schema.js";
import { Tokenizer } from "../src/language/tokenizer.js";
import { byteLevel, characters } from "./support/tokenizers.js";

/** Whether an automaton takes a text to its end. */
function takes(automaton, string) {
  let state = automaton.start;
  for (const byte of new TextEncoder().encode(string)) {
    state = state && automaton.step(state, byte);
    if (!state) return false;
  }
  return Boolean(state?.accepting);
}

/** The schema must allow the first texts and none of the second. */
function check(schema, good, bad) {
  const automaton = compileSchema(schema);
  for (const string of good) assert.ok(takes(automaton, string), `${JSON.stringify(schema)} refuses ${string}`);
  for (const string of bad) assert.ok(!takes(automaton, string), `${JSON.stringify(schema)} allows ${string}`);
}

const refused = (schema, message) => assert.throws(() => compileSchema(schema), { code: "input", message });

test("items: sequences, choices and repetitions", () => {
  const digit = bytes([0x30, 0x39]);
  const automaton = new Automaton(sequence(text("a"), choice(text("b"), text("bc")), repeat(digit, 1, 3)));
  for (const string of ["ab1", "abc12", "abc123"]) assert.ok(takes(automaton, string), string);
  for (const string of ["ab", "abc1234", "ac1", "ab1x", ""]) assert.ok(!takes(automaton, string), string);
});

test("items: what cannot come is left out, and nothing is left of a sequence with it", () => {
  assert.equal(sequence(text("a"), NOTHING), NOTHING);
  assert.equal(choice(NOTHING, NOTHING), NOTHING);
  assert.equal(repeat(text("a"), 2, 1), NOTHING);
  const only = text("a");
  assert.equal(choice(NOTHING, only), only);
});

test("items: a recursive item nests to any depth", () => {
  const nested = new Lazy(() => sequence(text("("), choice(text(""), nested), text(")")));
  const automaton = new Automaton(nested);
  assert.ok(takes(automaton, "(".repeat(50) + ")".repeat(50)));
  assert.ok(!takes(automaton, "(".repeat(50) + ")".repeat(49)));
});

test("items: a loop comes back to the same states", () => {
  const automaton = new Automaton(sequence(repeat(text("ab")), text(".")));
  const after = (string) => [...string].reduce((state, c) => automaton.step(state, c.charCodeAt(0)), automaton.start);
  assert.equal(after("ab"), after("abab"));
  assert.equal(after("a"), after("ababa"));
});

test("numbers between bounds, digit by digit", () => {
  const range = (low, high, type = "integer") => ({ type, minimum: low, maximum: high });
  check(range(-12, 7), ["-12", "-1", "0", "7"], ["-13", "8", "-", "07", "1.0", "10"]);
  check(range(99, 1234), ["99", "100", "999", "1234"], ["98", "1235", "9", "12345"]);
  check(range(0.1, 0.3, "number"), ["0.1", "0.25", "0.30"], ["0.09", "0.31", "0", "1"]);
  check({ type: "number", exclusiveMinimum: 5, maximum: 5.5 }, ["5.01", "5.5"], ["5", "5.0", "5.51"]);
  check({ type: "integer", exclusiveMinimum: 1, exclusiveMaximum: 3 }, ["2"], ["1", "3"]);
});

test("numbers: exclusive bounds of draft 4 are booleans", () => {
  check({ type: "number", minimum: 0, exclusiveMinimum: true }, ["0.5", "2"], ["0", "-1", "0.0"]);
  check(
    { type: "integer", minimum: 0, exclusiveMinimum: false, maximum: 3, exclusiveMaximum: true },
    ["0", "2"],
    ["3"],
  );
  check({ type: "number", exclusiveMinimum: true }, ["-5", "0", "1"], ["x"]);
});

test("keywords with values of other types are refused by name", () => {
  const wrong = {
    ...{ minimum: "x", maximum: null, exclusiveMinimum: "1", exclusiveMaximum: [2], minLength: "3", maxLength: -1 },
    ...{ minItems: 1.5, maxItems: true, required: "a", properties: [], prefixItems: {} },
  };
  for (const [key, value] of Object.entries(wrong)) {
    refused({ [key]: value }, new RegExp(`^json_schema#/${key}: expected .*, got `));
  }
  refused({ properties: null }, /^json_schema#\/properties: expected an object, got null/);
});

test("integers of a small range: exactly those within are allowed", () => {
  const automaton = compileSchema({ type: "integer", minimum: -37, maximum: 142 });
  for (let number = -400; number <= 400; number++) {
    assert.equal(takes(automaton, String(number)), number >= -37 && number <= 142, String(number));
  }
});

test("free numbers are those of JSON", () => {
  check({ type: "number" }, ["0", "-0", "1.5", "1e5", "-2.5E-10"], ["01", ".5", "1.", "+1", "e5", "1e", "Infinity"]);
  check({ type: "integer" }, ["0", "-7", "123"], ["1.0", "1e5", "00"]);
});

test("strings: lengths count characters, not bytes", () => {
  const two = { type: "string", minLength: 2, maxLength: 2 };
  check(two, ['"ab"', '"北京"', '"\\n\\""', '"👩a"'], ['"a"', '"abc"', '""', "ab", '"a\nb"', '"\\x"']);
});

test("strings: ill-formed UTF-8 cannot come", () => {
  const automaton = compileSchema({ type: "string" });
  const after = (...codes) =>
    codes.reduce((state, byte) => state && automaton.step(state, byte), automaton.step(automaton.start, 0x22));
  assert.ok(after(0xc3, 0xa9));
  for (const wrong of [[0x80], [0xc0], [0xc3, 0x41], [0xe0, 0x80], [0xed, 0xa0], [0xf0, 0x80], [0xf4, 0x90], [0xff]]) {
    assert.equal(after(...wrong), null, wrong.map((byte) => byte.toString(16)).join(" "));
  }
});

test("objects: properties come in order, optional ones may be missing", () => {
  const properties = { a: { type: "integer" }, b: { type: "null" } };
  const schema = { type: "object", properties, required: ["a"], additionalProperties: false };
  check(
    schema,
    ['{"a": 1}', '{"a": 1, "b": null}'],
    ["{}", '{"b": null}', '{"b": null, "a": 1}', '{"a": 1, "c": 2}', '{"a":1}'],
  );
});

test("objects: names that are integers come first, as in every object of JavaScript", () => {
  const properties = { a: { type: "null" }, 1: { type: "null" }, 0: { type: "null" } };
  const schema = { type: "object", properties, required: ["a", "1", "0"], additionalProperties: false };
  check(schema, ['{"0": null, "1": null, "a": null}'], ['{"a": null, "1": null, "0": null}']);
});

test("objects: other keys are those that no property has, however they begin", () => {
  const schema = { type: "object", properties: { name: { type: "null" } }, additionalProperties: { type: "boolean" } };
  check(
    schema,
    ["{}", '{"name": null}', '{"nam": true}', '{"names": true}', '{"name": null, "größe": false}'],
    ['{"name": true}', '{"name": null, "name": true}', '{"nam": null}'],
  );
});

test("objects: a required property that cannot be makes the object impossible", () => {
  refused({ type: "object", properties: { a: false }, required: ["a"] }, /no text satisfies it/);
  check({ type: "object", properties: { a: false }, additionalProperties: false }, ["{}"], ['{"a": 1}']);
});

test("arrays: first items, further ones and their number", () => {
  const schema = { type: "array", prefixItems: [{ const: 1 }], items: { const: 2 }, minItems: 1, maxItems: 3 };
  check(schema, ["[1]", "[1, 2]", "[1, 2, 2]"], ["[]", "[2]", "[1, 1]", "[1, 2, 2, 2]", "[1,2]"]);
  check({ type: "array", items: { const: 0 }, minItems: 2 }, ["[0, 0]", "[0, 0, 0, 0, 0]"], ["[0]", "[]"]);
  check({ type: "array", items: false }, ["[]"], ["[1]"]);
  refused({ type: "array", items: false, minItems: 1 }, /no text satisfies it/);
});

test("literals, unions and references", () => {
  check({ enum: ["a", 1, null, { x: [1, 2] }] }, ['"a"', "1", "null", '{"x": [1, 2]}'], ['"b"', '{"x":[1,2]}']);
  check({ type: "string", enum: ["a", 3] }, ['"a"'], ["3"]);
  check({ type: ["boolean", "null"] }, ["true", "false", "null"], ["0"]);
  check({ anyOf: [{ const: 1 }, { const: 12 }] }, ["1", "12"], ["2"]);
  check({ $ref: "#/$defs/a~1b", $defs: { "a/b": { const: 5 } } }, ["5"], ["6"]);
});

test("a schema that refers to itself nests", () => {
  const node = {
    type: "object",
    properties: { n: { anyOf: [{ type: "null" }, { $ref: "#" }] } },
    required: ["n"],
    additionalProperties: false,
  };
  check(node, ['{"n": null}', '{"n": {"n": {"n": null}}}'], ['{"n": {"n": null}', "{}"]);
});

test("what is not supported is an error with its name and path", () => {
  refused({ type: "string", pattern: "a+" }, /#\/pattern: pattern is not supported/);
  refused({ properties: { a: { type: "strin" } } }, /#\/properties\/a\/type: .*got strin/);
  refused({ $ref: "#/$defs/none" }, /does not exist/);
  refused({ $ref: "https://a.example/schema" }, /schema itself only/);
  refused({ oneOf: [{ type: "integer" }, { type: "number" }] }, /oneOf/);
  refused({ allOf: [{}, {}] }, /allOf of several/);
  refused({ enum: [1], minimum: 0 }, /minimum beside enum/);
  refused({ type: "array", items: [{}] }, /prefixItems/);
  refused({ const: "x".repeat(1 << 18) }, /at most 262144 characters/);
  refused(false, /no text satisfies it/);
});

const allowed = (mask, size) =>
  Array.from({ length: size }, (_, token) => token).filter((token) => (mask[token >> 5] >>> (token & 31)) & 1);

test("masks allow exactly the tokens whose bytes the automaton takes", () => {
  const merges = [
    ["t", "r"],
    ["tr", "u"],
    ["tru", "e"],
    ["t", "h"],
  ];
  const vocabulary = new Vocabulary(new Tokenizer(byteLevel(merges)), 260, new Set([0]));
  const matcher = new GrammarMatcher(vocabulary, compileSchema({ type: "boolean" }));
  assert.deepEqual(allowed(matcher.mask(), 260), ["f", "t"].map((c) => c.charCodeAt(0)).concat([256, 257, 258]));
  matcher.take(257); // "tru"
  assert.deepEqual(allowed(matcher.mask(), 260), ["e".charCodeAt(0)]);
  matcher.take("e".charCodeAt(0));
  assert.equal(matcher.ended, true);
  assert.deepEqual(allowed(matcher.mask(), 260), [0]); // the end only
});

test("an end is allowed where the text may end, and not before", () => {
  const vocabulary = new Vocabulary(new Tokenizer(characters(["</s>"])), 129, new Set([128]));
  const matcher = new GrammarMatcher(vocabulary, compileSchema({ type: "integer", minimum: 1, maximum: 20 }));
  const digits = (string) => [...string].map((c) => c.charCodeAt(0));
  assert.deepEqual(allowed(matcher.mask(), 129), digits("123456789"));
  matcher.take(50);
  assert.equal(matcher.ended, false);
  assert.deepEqual(allowed(matcher.mask(), 129), [...digits("0"), 128]);
});

test("a token that is not allowed is refused, and so is a schema that no token can begin", () => {
  const vocabulary = new Vocabulary(new Tokenizer(characters()), 128, new Set());
  const matcher = new GrammarMatcher(vocabulary, compileSchema({ const: "ü" }));
  assert.throws(() => matcher.take(97), { code: "input", message: /token 97/ });
  matcher.take(34);
  assert.throws(() => matcher.mask(), { code: "input", message: /no token of the vocabulary/ });
});

test("tokens with the same bytes are allowed together", () => {
  const json = byteLevel();
  json.added_tokens = /** @type {any} */ ([{ id: 256, content: "t", special: false }]);
  const vocabulary = new Vocabulary(new Tokenizer(json), 257, new Set());
  const mask = new GrammarMatcher(vocabulary, compileSchema({ const: true })).mask();
  const both = allowed(mask, 257);
  assert.ok(both.includes(256) && both.includes(116), both.join());
});
