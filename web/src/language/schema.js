// A JSON schema as an automaton over the bytes of the texts that it allows, as json.dumps lays them out. What it does
// not know is refused by name and place: an answer that ends follows its schema.
import { WebpteError } from "../errors.js";
import { Automaton, choice, Later, NOTHING, sequence, text } from "./schema_items.js";
import { number, otherKey, string } from "./schema_values.js";

/** @typedef {import("./schema_items.js").Item} Item */
const LONGEST = 1 << 18; // characters, as natively
const NOTES = [
  ..."title description default examples deprecated readOnly writeOnly".split(" "),
  ..."$schema $id $anchor $comment $defs definitions".split(" "),
];
/** Keywords by the type that they are about. @type {Record<string, string[]>} */
const KEYWORDS = {
  object: ["properties", "required", "additionalProperties"],
  array: ["items", "prefixItems", "minItems", "maxItems"],
  string: ["minLength", "maxLength"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
  integer: [],
  boolean: [],
  null: [],
};
const KNOWN = ["type", ...Object.values(KEYWORDS).flat()];
const ALONE = ["$ref", "anyOf", "oneOf", "allOf"]; // with notes beside them only
const ALL = ["object", "array", "string", "number", "boolean", "null"];

/** @param {string} where @param {string} why */
const refuse = (where, why) => new WebpteError("input", `json_schema cannot be followed: ${why} at ${where}`);

/** The automaton of a schema. @param {any} schema */
export function automatonOf(schema) {
  if (JSON.stringify(schema).length > LONGEST) throw refuse("#", `it has more than ${LONGEST} characters`);
  const automaton = new Automaton(new Compiler(schema).all());
  if (!automaton.start) throw refuse("#", "no text satisfies it");
  return /** @type {Automaton & {start: import("./schema_items.js").State}} */ (automaton);
}

class Compiler {
  /** Parts that are referred to, by pointer. @type {Map<string, Later>} */
  #parts = new Map();
  #root;
  #any = new Later(() => this.#schema({}, "#"));

  /** @param {any} root */
  constructor(root) {
    this.#root = root;
  }

  all() {
    const item = this.#schema(this.#root, "#");
    for (const part of this.#parts.values()) part.item; // each may add others; all are looked at before the first token
    return item;
  }

  /** @param {any} schema @param {string} where @returns {Item} */
  #schema(schema, where) {
    if (schema === true) return this.#any;
    if (schema === false) return NOTHING;
    if (typeof schema !== "object" || !schema || Array.isArray(schema)) throw refuse(where, "there is no schema");
    const keys = Object.keys(schema).filter((key) => !NOTES.includes(key));
    const alone = keys.find((key) => ALONE.includes(key));
    if (alone) {
      const other = keys.find((key) => key !== alone);
      if (other) throw refuse(`${where}/${other}`, `${other} beside ${alone} is not supported`);
      return this.#combined(alone, schema[alone], `${where}/${alone}`);
    }
    const types = schema.type === undefined ? ALL : [schema.type].flat();
    const unknown = types.find((type) => !(type in KEYWORDS));
    if (unknown !== undefined) throw refuse(`${where}/type`, `there is no type ${unknown}`);
    if ("enum" in schema || "const" in schema) return literals(schema, keys, types, where);
    const stranger = keys.find((key) => !KNOWN.includes(key));
    if (stranger) throw refuse(`${where}/${stranger}`, `${stranger} is not supported`);
    return choice(...types.map((type) => this.#typed(type, schema, where)));
  }

  /** @param {string} how @param {any} given @param {string} where */
  #combined(how, given, where) {
    if (how === "$ref") return this.#referred(given, where);
    const items = [given].flat().map((schema, at) => this.#schema(schema, `${where}/${at}`));
    if (how === "allOf" && items.length > 1) {
      throw refuse(where, "allOf of several schemas is not supported; write them as one");
    }
    if (how === "oneOf" && !areDisjoint(given)) {
      throw refuse(where, "oneOf of schemas that are not of different types is not supported; use anyOf");
    }
    return choice(...items);
  }

  /** @param {unknown} pointer @param {string} where */
  #referred(pointer, where) {
    if (typeof pointer !== "string" || !/^#(\/|$)/.test(pointer)) {
      throw refuse(where, `a $ref may point only into the schema itself, not to ${pointer}`);
    }
    let part = this.#parts.get(pointer);
    if (!part) {
      let schema = this.#root;
      for (const name of pointer.split("/").slice(1)) {
        const key = decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~");
        schema = Object.hasOwn(Object(schema), key) ? schema[key] : undefined;
      }
      if (schema === undefined) throw refuse(where, `${pointer} points to nothing`);
      part = new Later(() => this.#schema(schema, pointer));
      this.#parts.set(pointer, part);
    }
    return part;
  }

  /** @param {string} type @param {any} schema @param {string} where @returns {Item} */
  #typed(type, schema, where) {
    switch (type) {
      case "object":
        return this.#object(schema, where);
      case "array":
        return this.#array(schema, where);
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

  /** @param {any} schema @param {string} where */
  #object({ properties = {}, required = [], additionalProperties = true }, where) {
    const others = this.#schema(additionalProperties, `${where}/additionalProperties`);
    const names = [...new Set([...Object.keys(properties), ...required])];
    const entries = names
      .map((name) => ({
        name,
        needed: required.includes(name),
        value: Object.hasOwn(properties, name) ? this.#schema(properties[name], `${where}/properties/${name}`) : others,
      }))
      .filter(({ needed, value }) => needed || value !== NOTHING);
    if (entries.some(({ value }) => value === NOTHING)) return NOTHING;
    const key = otherKey(names);
    /** @type {Item[]} */
    const made = [];
    /** All from the property number `at` on. @param {number} at @param {number} first 1 or 0 @returns {Item} */
    const from = (at, first) =>
      (made[2 * at + first] ??= new Later(() => {
        const separator = first ? "" : ", ";
        if (at === entries.length) {
          return choice(text("}"), sequence(text(separator), key, text(": "), others, from(at, 0)));
        }
        const { name, value, needed } = entries[at];
        const there = sequence(text(`${separator}${JSON.stringify(name)}: `), value, from(at + 1, 0));
        return needed ? there : choice(there, from(at + 1, first));
      }));
    return sequence(text("{"), from(0, 1));
  }

  /** @param {any} schema @param {string} where */
  #array({ items = true, prefixItems = [], minItems = 0, maxItems = Infinity }, where) {
    if (Array.isArray(items)) throw refuse(`${where}/items`, "items is one schema; prefixItems is a list of them");
    const first = prefixItems.map((/** @type {any} */ item, /** @type {number} */ at) =>
      this.#schema(item, `${where}/prefixItems/${at}`),
    );
    const others = this.#schema(items, `${where}/items`);
    const item = (/** @type {number} */ at) => first[at] ?? others;
    let most = maxItems;
    for (let at = 0; at <= first.length && at < most; at++) if (item(at) === NOTHING) most = at;
    if (minItems > most) return NOTHING;
    const alike = Math.max(first.length, minItems, 1); // from there on all are the same, if there is no last one
    /** @type {Item[]} */
    const made = [];
    /** All from the element number `at` on. @param {number} at @returns {Item} */
    const from = (at) =>
      (made[at] ??= new Later(() => {
        const next = most === Infinity ? Math.min(at + 1, alike) : at + 1;
        const more = at < most ? sequence(text(at ? ", " : ""), item(at), from(next)) : NOTHING;
        return at < minItems ? more : choice(text("]"), more);
      }));
    return sequence(text("["), from(0));
  }
}

/** @param {any} schema @param {boolean} whole */
function bounds(schema, whole) {
  const { minimum = -Infinity, maximum = Infinity } = schema;
  const { exclusiveMinimum = -Infinity, exclusiveMaximum = Infinity } = schema;
  const above = exclusiveMinimum >= minimum && exclusiveMinimum > -Infinity;
  const below = exclusiveMaximum <= maximum && exclusiveMaximum < Infinity;
  return { low: above ? exclusiveMinimum : minimum, high: below ? exclusiveMaximum : maximum, above, below, whole };
}

/** @param {any} schema @param {string[]} keys @param {string[]} types @param {string} where */
function literals(schema, keys, types, where) {
  const other = keys.find((key) => !["enum", "const", "type"].includes(key));
  if (other) throw refuse(`${where}/${other}`, `${other} beside enum or const is not supported`);
  const values = "enum" in schema ? [schema.enum].flat(1) : [schema.const];
  const wanted = "const" in schema ? values.filter((value) => json(value) === json(schema.const)) : values;
  return choice(...wanted.filter((value) => types.some((type) => isOf(type, value))).map((value) => text(json(value))));
}

/** @param {string} type @param {unknown} value */
function isOf(type, value) {
  const own = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  return type === own || (type === "integer" && Number.isInteger(value));
}

/** As json.dumps writes it. @param {any} value @returns {string} */
function json(value) {
  if (Array.isArray(value)) return `[${value.map(json).join(", ")}]`;
  if (typeof value !== "object" || !value) return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([name, inside]) => `${JSON.stringify(name)}: ${json(inside)}`)
    .join(", ")}}`;
}

/** Whether no value can be of two of the schemas. @param {any} schemas */
function areDisjoint(schemas) {
  const types = [schemas]
    .flat()
    .flatMap((schema) => schema.type)
    .map((type) => (type === "integer" ? "number" : type));
  return !types.includes(undefined) && new Set(types).size === types.length;
}
