// Runs the tree of a template.
import { runFilter, runTest } from "./filters.js";
import { GLOBALS, loopOf } from "./globals.js";
import { arithmetic, item, joined, signed, sliced } from "./operators.js";
import { parse } from "./parser.js";
import { methodOf } from "./strings.js";
import {
  Attributes,
  asString,
  compare,
  contains,
  Dict,
  equal,
  fromJs,
  iterate,
  Markup,
  str,
  TemplateError,
  Tuple,
  truth,
  typeName,
  Undefined,
  View,
} from "./values.js";

/** @typedef {import("./values.js").Value} Value */
/** @typedef {import("./values.js").Callable} Callable */
/** @typedef {import("./parser.js").Node} Node */

const STEPS = 1_000_000; // nodes of templates that are run
const FORBIDDEN = "append clear extend fromkeys insert pop popitem remove reverse setdefault sort update".split(" ");
const OF_NUMBERS =
  /^(?:as_integer_ratio|bit_count|bit_length|conjugate|denominator|fromhex|from_bytes|hex|imag|is_integer|numerator|real|to_bytes)$/;

/** Render a template. @param {string} source @param {Record<string, unknown>} variables plain JavaScript @returns {string} */
export function render(source, variables) {
  const scope = new Scope(null);
  for (const [name, value] of Object.entries(GLOBALS)) scope.names.set(name, value);
  for (const [name, value] of Object.entries(variables)) scope.names.set(name, fromJs(value));
  return new Renderer().text(parse(source), new Scope(scope));
}

class Scope {
  /** @type {Map<string, Value>} */
  names = new Map();

  /** @param {Scope | null} outer */
  constructor(outer) {
    this.outer = outer;
  }

  /** @param {string} name @returns {Value} */
  get(name) {
    for (let scope = /** @type {Scope | null} */ (this); scope; scope = scope.outer) {
      const value = scope.names.get(name);
      if (value !== undefined) return value;
    }
    return new Undefined(`'${name}'`);
  }
}

/** Return whether a name is used anywhere in a tree. @param {any} tree @param {string} name @returns {boolean} */
function uses(tree, name) {
  if (typeof tree !== "object" || tree === null) return false;
  return (tree.kind === "Name" && tree.name === name) || Object.values(tree).some((part) => uses(part, name));
}

/** Return an attribute of the Python object; undefined if it has none. @param {Value} value @param {string} name @returns {Value} */
function attribute(value, name) {
  if (value instanceof Undefined) value.fail();
  if (value instanceof Attributes) return value.attributes.get(name);
  if (typeof value === "string") return methodOf(value, name);
  if (value instanceof Markup) throw new TemplateError(`${name} after safe or escape is not supported in a page`);
  if (typeof value === "bigint" || typeof value === "number" || typeof value === "boolean") {
    if (OF_NUMBERS.test(name)) throw new TemplateError(`the attribute ${name} of numbers is not supported in a page`);
    return undefined;
  }
  const list = Array.isArray(value) ? value : value instanceof Tuple ? value.items : null;
  if (!list && !(value instanceof Dict)) return undefined;
  if (FORBIDDEN.includes(name) && (Array.isArray(value) || value instanceof Dict)) {
    return () => {
      throw new TemplateError(`the method ${name} would change its object`);
    };
  }
  if (value instanceof Dict) {
    if (name === "get")
      return (/** @type {Value[]} */ [key, otherwise = null]) => value.get(key) ?? (value.has(key) ? null : otherwise);
    if (name === "keys" || name === "values" || name === "items") return () => new View(name, value);
    return name === "copy" ? () => new Dict(value.items()) : undefined;
  }
  if (name === "copy" && Array.isArray(value)) return () => [...value];
  const same = (/** @type {Value} */ target) => (/** @type {Value} */ each) => equal(each, target);
  if (name === "count")
    return (/** @type {Value[]} */ [target]) => BigInt(/** @type {Value[]} */ (list).filter(same(target)).length);
  if (name !== "index") return undefined;
  return (/** @type {Value[]} */ [target]) => {
    const at = /** @type {Value[]} */ (list).findIndex(same(target));
    if (at < 0) throw new TemplateError("index: the value is not in the list");
    return BigInt(at);
  };
}

/** `value.name`: an attribute, else an item. @param {Value} value @param {string} name @returns {Value} */
function dot(value, name) {
  if (/^__\w+__$/.test(name)) return new Undefined(`'${name}'`);
  return attribute(value, name) ?? own(item(value, name), name);
}

/** `value[key]`: an item, else an attribute. @param {Value} value @param {Value} key @returns {Value} */
function subscript(value, key) {
  const element = item(value, key);
  if (element !== undefined || typeof key !== "string" || /^__\w+__$/.test(key)) return own(element, key);
  return own(attribute(value, key), key);
}

/** @param {Value} element @param {Value} name */
const own = (element, name) =>
  element === undefined ? new Undefined(typeof name === "string" ? `'${name}'` : "an element") : element;

class Renderer {
  #steps = 0;

  /** @param {Node[]} body @param {Scope} scope */
  text(body, scope) {
    /** @type {string[]} */
    const out = [];
    this.#run(body, scope, out);
    return joined(out);
  }

  #step() {
    if (++this.#steps > STEPS) throw new TemplateError(`it takes more than ${STEPS} steps`);
  }

  /** Render a body. Return the statement that ends the iteration of the innermost loop, if any. @param {Node[]} body @param {Scope} scope @param {string[]} out @returns {"break" | "continue" | undefined} */
  #run(body, scope, out) {
    for (const node of body) {
      const left = this.#statement(node, scope, out);
      if (left) return left;
    }
  }

  /** @param {Node} node @param {Scope} scope @param {string[]} out @returns {"break" | "continue" | undefined} */
  #statement(node, scope, out) {
    this.#step();
    switch (node.kind) {
      case "Data":
        out.push(node.value);
        return;
      case "Output":
        out.push(str(this.#value(node.value, scope)));
        return;
      case "If": {
        const branch = node.branches.find((/** @type {Node} */ each) => truth(this.#value(each.test, scope)));
        return this.#run(branch ? branch.body : node.otherwise, scope, out);
      }
      case "For":
        return this.#for(node, scope, out);
      case "Set":
        return this.#assign(node.target, this.#value(node.value, scope), scope);
      case "SetBlock": {
        const text = this.text(node.body, new Scope(scope));
        return this.#assign(node.target, node.filter ? this.#filtered(node.filter, text, scope) : text, scope);
      }
      case "Macro":
        scope.names.set(node.name, this.#macro(node, scope));
        return;
      case "CallBlock": {
        const { callee, args, named } = this.#call(node.call, scope);
        named.set("caller", this.#macro(node, scope));
        out.push(str(this.#invoke(callee, args, named)));
        return;
      }
      case "FilterBlock":
        out.push(str(this.#filtered(node.filter, this.text(node.body, new Scope(scope)), scope)));
        return;
      case "With": {
        const inner = new Scope(scope);
        const values = node.pairs.map((/** @type {Node[]} */ [, value]) => this.#value(value, scope));
        node.pairs.forEach((/** @type {Node[]} */ [target], /** @type {number} */ at) =>
          this.#assign(target, values[at], inner),
        );
        return this.#run(node.body, inner, out);
      }
      default:
        return /** @type {"break" | "continue"} */ (node.kind);
    }
  }

  /** @param {Node} node @param {Scope} scope @param {string[]} out @returns {"break" | "continue" | undefined} */
  #for(node, scope, out) {
    let items = [...iterate(this.#value(node.iterable, scope))];
    if (node.test) {
      items = items.filter((each) => {
        const inner = new Scope(scope);
        this.#assign(node.target, each, inner);
        return truth(this.#value(node.test, inner));
      });
    }
    if (!items.length) return this.#run(node.otherwise, new Scope(scope), out);
    const changes = { seen: undefined };
    for (const [at, each] of items.entries()) {
      this.#step();
      const inner = new Scope(scope);
      inner.names.set("loop", loopOf(items, at, changes));
      this.#assign(node.target, each, inner);
      if (this.#run(node.body, inner, out) === "break") break;
    }
  }

  /** @param {Node} target @param {Value} value @param {Scope} scope @returns {undefined} */
  #assign(target, value, scope) {
    if (target.kind === "Tuple") {
      const values = [...iterate(value)];
      if (values.length !== target.items.length) {
        throw new TemplateError(`expected ${target.items.length} values to assign, got ${values.length}`);
      }
      target.items.forEach((/** @type {Node} */ each, /** @type {number} */ at) =>
        this.#assign(each, values[at], scope),
      );
    } else if (target.kind === "NamespaceItem") {
      const namespace = scope.get(target.name);
      if (!(namespace instanceof Attributes && namespace.printable))
        throw new TemplateError(`${target.name} is not a namespace`);
      namespace.attributes.set(target.attribute, value);
    } else scope.names.set(target.name, value);
  }

  /** @param {Node} node @param {Scope} scope @returns {Callable} */
  #macro(node, scope) {
    const [asksCaller, asksNamed, asksRest] = ["caller", "kwargs", "varargs"].map((name) => uses(node.body, name));
    return (args, named) => {
      const inner = new Scope(scope);
      const rest = new Map(named);
      if (args.length > node.parameters.length && !asksRest)
        throw new TemplateError(`${node.name}: too many arguments`);
      node.parameters.forEach((/** @type {Node} */ parameter, /** @type {number} */ at) => {
        const { name, default: otherwise } = parameter;
        let value = at < args.length ? args[at] : undefined;
        if (value === undefined && rest.has(name)) {
          value = rest.get(name);
          rest.delete(name);
        }
        inner.names.set(
          name,
          value ?? (value === null ? null : otherwise ? this.#value(otherwise, inner) : new Undefined(`'${name}'`)),
        );
      });
      if (asksCaller && !inner.names.has("caller")) {
        inner.names.set("caller", rest.get("caller") ?? new Undefined("'caller'"));
        rest.delete("caller");
      }
      if (asksNamed) inner.names.set("kwargs", new Dict(rest));
      else for (const name of rest.keys()) throw new TemplateError(`${node.name}: unexpected argument ${name}`);
      if (asksRest) inner.names.set("varargs", new Tuple(args.slice(node.parameters.length)));
      return this.text(node.body, inner);
    };
  }

  /** @param {Node} filter the innermost of which has no value @param {Value} value @param {Scope} scope @returns {Value} */
  #filtered(filter, value, scope) {
    const inner = filter.value ? this.#filtered(filter.value, value, scope) : value;
    const { args, named } = this.#arguments(filter, scope);
    return runFilter(filter.name, inner, args, named, subscript);
  }

  /** @param {Node} node @param {Scope} scope @returns {{args: Value[], named: Map<string, Value>}} */
  #arguments({ args, named, spread }, scope) {
    const list = args.map((/** @type {Node} */ each) => this.#value(each, scope));
    const byName = new Map(named.map((/** @type {[string, Node]} */ [name, each]) => [name, this.#value(each, scope)]));
    if (spread.list) list.push(...iterate(this.#value(spread.list, scope)));
    if (spread.dict) {
      const dict = this.#value(spread.dict, scope);
      if (!(dict instanceof Dict)) throw new TemplateError("**: expected a dict");
      for (const [name, value] of dict.items()) byName.set(asString(name, "**"), value);
    }
    return { args: list, named: byName };
  }

  /** @param {Node} node @param {Scope} scope */
  #call(node, scope) {
    const callee = this.#value(node.callee, scope);
    return { callee, ...this.#arguments(node, scope) };
  }

  /** @param {Value} callee @param {Value[]} args @param {Map<string, Value>} named @returns {Value} */
  #invoke(callee, args, named) {
    this.#step();
    if (callee instanceof Undefined) callee.fail();
    if (typeof callee !== "function") throw new TemplateError(`${typeName(callee)} cannot be called`);
    return callee(args, named);
  }

  /** @param {Node} node @param {Scope} scope @returns {Value} */
  #value(node, scope) {
    const value = (/** @type {Node} */ each) => this.#value(each, scope);
    switch (node.kind) {
      case "Constant":
        return node.value;
      case "Name":
        return scope.get(node.name);
      case "Attribute":
        return dot(value(node.value), node.name);
      case "Item":
        if (node.key.kind === "Slice") {
          const container = value(node.value);
          return own(
            sliced(
              container,
              node.key.bounds.map((/** @type {Node | null} */ each) => (each ? value(each) : null)),
            ),
            null,
          );
        }
        return subscript(value(node.value), value(node.key));
      case "Call": {
        const { callee, args, named } = this.#call(node, scope);
        return this.#invoke(callee, args, named);
      }
      case "Filter": {
        const first = value(node.value);
        const { args, named } = this.#arguments(node, scope);
        this.#step();
        return runFilter(node.name, first, args, named, subscript);
      }
      case "Test": {
        const first = value(node.value);
        const { args, named } = this.#arguments(node, scope);
        return runTest(node.name, first, args, named);
      }
      case "Conditional":
        if (truth(value(node.test))) return value(node.value);
        return node.otherwise ? value(node.otherwise) : new Undefined("the other case");
      case "Or": {
        const left = value(node.left);
        return truth(left) ? left : value(node.right);
      }
      case "And": {
        const left = value(node.left);
        return truth(left) ? value(node.right) : left;
      }
      case "Not":
        return !truth(value(node.value));
      case "Compare":
        return this.#compare(node, scope);
      case "Concat":
        return joined([str(value(node.left)), str(value(node.right))]);
      case "Binary":
        return arithmetic(node.operator, value(node.left), value(node.right));
      case "Sign":
        return signed(node.sign, value(node.value));
      case "List":
        return node.items.map(value);
      case "Tuple":
        return new Tuple(node.items.map(value));
      case "Dict":
        return new Dict(node.pairs.map((/** @type {Node} */ pair) => [value(pair.key), value(pair.value)]));
      default:
        throw new TemplateError(`${node.kind} is not supported in a page`);
    }
  }

  /** @param {Node} node @param {Scope} scope */
  #compare({ first, rest }, scope) {
    let left = this.#value(first, scope);
    for (const { operator, value } of rest) {
      const right = this.#value(value, scope);
      if (!holds(operator, left, right)) return false;
      left = right;
    }
    return true;
  }
}

/** @param {string} operator @param {Value} a @param {Value} b */
function holds(operator, a, b) {
  if (operator === "==" || operator === "!=") return equal(a, b) === (operator === "==");
  if (operator === "in" || operator === "not in") return contains(a, b) === (operator === "in");
  for (const each of [a, b]) if (each instanceof Undefined) each.fail();
  const order = compare(a, b);
  return operator === "<" ? order < 0 : operator === "<=" ? order <= 0 : operator === ">" ? order > 0 : order >= 0;
}
