// Compile a JSON schema to an automaton over the bytes of the texts that it allows, with the spaces of json.dumps. An
// unsupported keyword is an error that names it and its path, so that every finished answer is valid.
//
// Python compiles schemas with llguidance. The page has its own compiler because callers pass schemas at run time: the
// bundle cannot carry them precompiled, there is no server, and the pages' content security policy forbids WebAssembly.
import { WebpteError } from "../errors.js";
import { Automaton, choice, Lazy, NOTHING, sequence, text } from "./automaton.js";
import { number, otherKey, string } from "./schema_values.js";

/** @typedef {import("./automaton.js").Item} Item */
const MAX_SOURCE_CHARS = 1 << 18; // as in Python
const ANNOTATIONS = [
  ..."title description default examples deprecated readOnly writeOnly".split(" "),
  ..."$schema $id $anchor $comment $defs definitions".split(" "),
];
/** Keywords by the type that they constrain. @type {Record<string, string[]>} */
const KEYWORDS = {
  object: ["properties", "required", "additionalProperties"],
  array: ["items", "prefixItems", "minItems", "maxItems"],
  string: ["minLength", "maxLength"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
  integer: [],
  boolean: [],
  null: [],
};
const NUMBER = ["a number", Number.isFinite];
const COUNT = ["an integer of at least 0", (/** @type {any} */ value) => Number.isSafeInteger(value) && value >= 0];
const EXCLUSIVE = ["a number or a boolean", (/** @type {any} */ value) => Number.isFinite(value) || value === !!value];
const LIST = ["a list", Array.isArray];
/** What the value of a keyword is, and its check. @type {Record<string, any[]>} */
const VALUES = {
  ...Object.fromEntries("minItems maxItems minLength maxLength".split(" ").map((key) => [key, COUNT])),
  ...{ minimum: NUMBER, maximum: NUMBER, exclusiveMinimum: EXCLUSIVE, exclusiveMaximum: EXCLUSIVE },
  ...{ required: LIST, prefixItems: LIST },
  properties: ["an object", (/** @type {any} */ value) => value && typeof value === "object" && !Array.isArray(value)],
};
const SUPPORTED = ["type", ...Object.values(KEYWORDS).flat()];
const ALONE = ["$ref", "anyOf", "oneOf", "allOf"]; // with annotations beside them only
const ALL_TYPES = ["object", "array", "string", "number", "boolean", "null"];

/** @param {string} path @param {string} reason */
const schemaError = (path, reason) => new WebpteError("input", `json_schema${path}: ${reason}.`);

/** Return the automaton of a schema. @param {any} schema */
export function compileSchema(schema) {
  const { length } = JSON.stringify(schema);
  if (length > MAX_SOURCE_CHARS)
    throw schemaError("#", `expected at most ${MAX_SOURCE_CHARS} characters, got ${length}`);
  const automaton = new Automaton(new Compiler(schema).all());
  if (!automaton.start) throw schemaError("#", "no text satisfies it");
  return /** @type {Automaton & {start: import("./automaton.js").State}} */ (automaton);
}

class Compiler {
  /** The targets of $ref, by pointer. @type {Map<string, Lazy>} */
  #targets = new Map();
  #root;
  #any = new Lazy(() => this.#schema({}, "#"));

  /** @param {any} root */
  constructor(root) {
    this.#root = root;
  }

  all() {
    const item = this.#schema(this.#root, "#");
    for (const target of this.#targets.values()) target.item; // compile all now: an error must come before the first token
    return item;
  }

  /** @param {any} schema @param {string} path @returns {Item} */
  #schema(schema, path) {
    if (schema === true) return this.#any;
    if (schema === false) return NOTHING;
    if (typeof schema !== "object" || !schema || Array.isArray(schema))
      throw schemaError(path, `expected a schema, got ${JSON.stringify(schema)}`);
    const keys = Object.keys(schema).filter((key) => !ANNOTATIONS.includes(key));
    const alone = keys.find((key) => ALONE.includes(key));
    if (alone) {
      const other = keys.find((key) => key !== alone);
      if (other) throw schemaError(`${path}/${other}`, `${other} beside ${alone} is not supported`);
      return this.#combined(alone, schema[alone], `${path}/${alone}`);
    }
    const types = schema.type === undefined ? ALL_TYPES : [schema.type].flat();
    const unknown = types.find((type) => !(type in KEYWORDS));
    if (unknown !== undefined)
      throw schemaError(`${path}/type`, `expected one of ${Object.keys(KEYWORDS).join(", ")}, got ${unknown}`);
    if ("enum" in schema || "const" in schema) return literals(schema, keys, types, path);
    const unsupported = keys.find((key) => !SUPPORTED.includes(key));
    if (unsupported) throw schemaError(`${path}/${unsupported}`, `${unsupported} is not supported`);
    for (const key of keys) {
      const [expected, isValid] = VALUES[key] ?? ["", () => true];
      if (!isValid(schema[key]))
        throw schemaError(`${path}/${key}`, `expected ${expected}, got ${JSON.stringify(schema[key])}`);
    }
    return choice(...types.map((type) => this.#typed(type, schema, path)));
  }

  /** @param {string} keyword @param {any} value @param {string} path */
  #combined(keyword, value, path) {
    if (keyword === "$ref") return this.#reference(value, path);
    const items = [value].flat().map((schema, at) => this.#schema(schema, `${path}/${at}`));
    if (keyword === "allOf" && items.length > 1) {
      throw schemaError(path, "allOf of several schemas is not supported; merge them");
    }
    if (keyword === "oneOf" && !areDisjoint(value)) {
      throw schemaError(path, "oneOf is supported for schemas of different types only; use anyOf");
    }
    return choice(...items);
  }

  /** @param {unknown} pointer @param {string} path */
  #reference(pointer, path) {
    if (typeof pointer !== "string" || !/^#(\/|$)/.test(pointer)) {
      throw schemaError(path, `$ref is supported into the schema itself only, got ${pointer}`);
    }
    let target = this.#targets.get(pointer);
    if (!target) {
      let schema = this.#root;
      for (const name of pointer.split("/").slice(1)) {
        const key = decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~");
        schema = Object.hasOwn(Object(schema), key) ? schema[key] : undefined;
      }
      if (schema === undefined) throw schemaError(path, `the target ${pointer} of $ref does not exist`);
      target = new Lazy(() => this.#schema(schema, pointer));
      this.#targets.set(pointer, target);
    }
    return target;
  }

  /** @param {string} type @param {any} schema @param {string} path @returns {Item} */
  #typed(type, schema, path) {
    switch (type) {
      case "object":
        return this.#object(schema, path);
      case "array":
        return this.#array(schema, path);
      case "string":
        return string(schema.minLength, schema.maxLength);
      case "boolean":
        return choice(text("true"), text("false"));
      case "null":
        return text("null");
      default:
        return number(bounds(schema, type === "integer"));
    }
  }

  /** @param {any} schema @param {string} path */
  #object({ properties = {}, required = [], additionalProperties = true }, path) {
    const others = this.#schema(additionalProperties, `${path}/additionalProperties`);
    const names = [...new Set([...Object.keys(properties), ...required])];
    const entries = names
      .map((name) => ({
        name,
        isRequired: required.includes(name),
        value: Object.hasOwn(properties, name) ? this.#schema(properties[name], `${path}/properties/${name}`) : others,
      }))
      .filter(({ isRequired, value }) => isRequired || value !== NOTHING);
    if (entries.some(({ value }) => value === NOTHING)) return NOTHING;
    const key = otherKey(names);
    /** @type {Item[]} */
    const cache = [];
    /** Return all from property number `at`. @param {number} at @param {number} first 1 or 0 @returns {Item} */
    const from = (at, first) =>
      (cache[2 * at + first] ??= new Lazy(() => {
        const separator = first ? "" : ", ";
        if (at === entries.length) {
          return choice(text("}"), sequence(text(separator), key, text(": "), others, from(at, 0)));
        }
        const { name, value, isRequired } = entries[at];
        const present = sequence(text(`${separator}${JSON.stringify(name)}: `), value, from(at + 1, 0));
        return isRequired ? present : choice(present, from(at + 1, first));
      }));
    return sequence(text("{"), from(0, 1));
  }

  /** @param {any} schema @param {string} path */
  #array({ items = true, prefixItems = [], minItems = 0, maxItems = Infinity }, path) {
    if (Array.isArray(items)) throw schemaError(`${path}/items`, "expected one schema, got a list; use prefixItems");
    const first = prefixItems.map((/** @type {any} */ item, /** @type {number} */ at) =>
      this.#schema(item, `${path}/prefixItems/${at}`),
    );
    const others = this.#schema(items, `${path}/items`);
    const item = (/** @type {number} */ at) => first[at] ?? others;
    let max = maxItems;
    for (let at = 0; at <= first.length && at < max; at++) if (item(at) === NOTHING) max = at;
    if (minItems > max) return NOTHING;
    const uniform = Math.max(first.length, minItems, 1); // without a maximum, all elements from this one are the same
    /** @type {Item[]} */
    const cache = [];
    /** Return all from element number `at`. @param {number} at @returns {Item} */
    const from = (at) =>
      (cache[at] ??= new Lazy(() => {
        const next = max === Infinity ? Math.min(at + 1, uniform) : at + 1;
        const more = at < max ? sequence(text(at ? ", " : ""), item(at), from(next)) : NOTHING;
        return at < minItems ? more : choice(text("]"), more);
      }));
    return sequence(text("["), from(0));
  }
}

/** @param {any} schema @param {boolean} integer */
function bounds(schema, integer) {
  const { minimum = -Infinity, maximum = Infinity } = schema;
  let { exclusiveMinimum = -Infinity, exclusiveMaximum = Infinity } = schema;
  // In draft 4 of JSON schema they are booleans, and say whether the other bound is exclusive.
  if (typeof exclusiveMinimum === "boolean") exclusiveMinimum = exclusiveMinimum ? minimum : -Infinity;
  if (typeof exclusiveMaximum === "boolean") exclusiveMaximum = exclusiveMaximum ? maximum : Infinity;
  const above = exclusiveMinimum >= minimum && exclusiveMinimum > -Infinity;
  const below = exclusiveMaximum <= maximum && exclusiveMaximum < Infinity;
  return { low: above ? exclusiveMinimum : minimum, high: below ? exclusiveMaximum : maximum, above, below, integer };
}

/** @param {any} schema @param {string[]} keys @param {string[]} types @param {string} path */
function literals(schema, keys, types, path) {
  const other = keys.find((key) => !["enum", "const", "type"].includes(key));
  if (other) throw schemaError(`${path}/${other}`, `${other} beside enum or const is not supported`);
  const values = "enum" in schema ? [schema.enum].flat(1) : [schema.const];
  const allowed = "const" in schema ? values.filter((value) => json(value) === json(schema.const)) : values;
  return choice(
    ...allowed.filter((value) => types.some((type) => isOf(type, value))).map((value) => text(json(value))),
  );
}

/** @param {string} type @param {unknown} value */
function isOf(type, value) {
  const own = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  return type === own || (type === "integer" && Number.isInteger(value));
}

/** Return a value as json.dumps writes it. @param {any} value @returns {string} */
function json(value) {
  if (Array.isArray(value)) return `[${value.map(json).join(", ")}]`;
  if (typeof value !== "object" || !value) return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([name, inside]) => `${JSON.stringify(name)}: ${json(inside)}`)
    .join(", ")}}`;
}

/** Return whether no value can satisfy two of the schemas. @param {any} schemas */
function areDisjoint(schemas) {
  const types = [schemas]
    .flat()
    .flatMap((schema) => schema.type)
    .map((type) => (type === "integer" ? "number" : type));
  return !types.includes(undefined) && new Set(types).size === types.length;
}
