// Parse tokens to a tree with Jinja's grammar. Nodes are objects with a `kind`.
import { tokenize } from "./lexer.js";
import { TemplateError } from "./values.js";

/** @typedef {{kind: string, [key: string]: any}} Node */
const COMPARISONS = ["==", "!=", "<", "<=", ">", ">="];
const CONSTANTS = new Map(
  Object.entries({ true: true, True: true, false: false, False: false, none: null, None: null }),
);

/** @param {string} source @returns {Node[]} */
export function parse(source) {
  return new Parser(source).body([]);
}

class Parser {
  #at = 0;
  #tokens;
  #loops = 0;

  /** @param {string} source */
  constructor(source) {
    this.#tokens = tokenize(source);
  }

  get #token() {
    return this.#tokens[this.#at];
  }

  /** @param {string} type @param {any} [value] */
  #is(type, value) {
    return this.#token.type === type && (value === undefined || this.#token.value === value);
  }

  /** Skip a token if it is this one. @param {string} type @param {any} [value] */
  #skip(type, value) {
    const is = this.#is(type, value);
    if (is) this.#at++;
    return is;
  }

  /** @param {string} type @param {any} [value] */
  #expect(type, value) {
    const token = this.#token;
    if (!this.#skip(type, value)) throw new TemplateError(`expected ${value ?? type}, got ${token.value}`);
    return token.value;
  }

  // -- statements --------------------------------------------------------------------------------------------------

  /** Parse up to one of the tags, exclusive; without tags up to the end. @param {string[]} ends @returns {Node[]} */
  body(ends) {
    /** @type {Node[]} */
    const nodes = [];
    for (;;) {
      const { type, value } = this.#token;
      if (type === "end") {
        if (ends.length) throw new TemplateError(`expected ${ends.join(" or ")}, got ${value}`);
        return nodes;
      }
      this.#at++;
      if (type === "data") nodes.push({ kind: "Data", value });
      else if (type === "variable") {
        nodes.push({ kind: "Output", value: this.#tuple() });
        this.#expect("close");
      } else {
        if (this.#token.type === "name" && ends.includes(this.#token.value)) return nodes;
        nodes.push(this.#statement());
        this.#expect("close");
      }
    }
  }

  /** Parse the body of a tag, including its end tag. @param {string} end */
  #block(end) {
    this.#expect("close");
    const nodes = this.body([end]);
    this.#expect("name", end);
    return nodes;
  }

  /** @returns {Node} */
  #statement() {
    const tag = this.#expect("name");
    switch (tag) {
      case "for":
        return this.#for();
      case "if":
        return this.#if();
      case "set":
        return this.#set();
      case "macro": {
        const name = this.#expect("name");
        return { kind: "Macro", name, ...this.#signature(), body: this.#block("endmacro") };
      }
      case "call": {
        const signature = this.#is("(") ? this.#signature() : { parameters: [] };
        const call = this.#expression();
        if (call.kind !== "Call") throw new TemplateError("call: expected a call");
        return { kind: "CallBlock", call, name: "caller", ...signature, body: this.#block("endcall") };
      }
      case "filter":
        return { kind: "FilterBlock", filter: this.#filters(null, true), body: this.#block("endfilter") };
      case "with": {
        const pairs = [];
        while (!this.#is("close")) {
          if (pairs.length) this.#expect(",");
          const target = this.#target(false);
          this.#expect("=");
          pairs.push([target, this.#expression()]);
        }
        return { kind: "With", pairs, body: this.#block("endwith") };
      }
      case "print":
        return { kind: "Output", value: this.#tuple() };
      case "generation": // marks the model's answers, for training
        return { kind: "With", pairs: [], body: this.#block("endgeneration") };
      case "break":
      case "continue":
        if (!this.#loops) throw new TemplateError(`${tag} outside of a loop`);
        return { kind: tag };
      default:
        throw new TemplateError(`the tag ${tag} is not supported in a page`);
    }
  }

  #for() {
    const target = this.#target(false, "in");
    this.#expect("name", "in");
    const iterable = this.#tuple({ conditional: false });
    const test = this.#skip("name", "if") ? this.#expression() : null;
    if (this.#is("name", "recursive")) throw new TemplateError("recursive loops are not supported in a page");
    this.#expect("close");
    this.#loops++;
    const body = this.body(["endfor", "else"]);
    this.#loops--;
    /** @type {Node[]} */
    let otherwise = [];
    if (this.#skip("name", "else")) otherwise = this.#block("endfor");
    else this.#at++;
    return { kind: "For", target, iterable, test, body, otherwise };
  }

  #if() {
    const branches = [];
    /** @type {Node[]} */
    let otherwise = [];
    for (;;) {
      const test = this.#tuple({ conditional: false });
      this.#expect("close");
      branches.push({ test, body: this.body(["elif", "else", "endif"]) });
      if (this.#skip("name", "elif")) continue;
      if (this.#skip("name", "else")) otherwise = this.#block("endif");
      else this.#at++;
      return { kind: "If", branches, otherwise };
    }
  }

  #set() {
    const target = this.#target(true);
    if (this.#skip("=")) return { kind: "Set", target, value: this.#tuple() };
    const filter = this.#is("|") ? this.#filters(null, false) : null;
    return { kind: "SetBlock", target, filter, body: this.#block("endset") };
  }

  /** Parse the target of an assignment. @param {boolean} attributes whether of namespaces @param {string} [end] @returns {Node} */
  #target(attributes, end) {
    const targets = [];
    let many = false;
    while (!(targets.length && end && this.#is("name", end))) {
      if (this.#skip("(")) {
        targets.push(this.#target(attributes));
        this.#expect(")");
      } else {
        const name = this.#expect("name");
        if (CONSTANTS.has(name)) throw new TemplateError(`cannot assign to ${name}`);
        if (attributes && this.#skip("."))
          targets.push({ kind: "NamespaceItem", name, attribute: this.#expect("name") });
        else targets.push({ kind: "Name", name });
      }
      if (!this.#skip(",")) break;
      many = true;
      if (this.#is("=") || this.#is(")") || this.#is("close")) break;
    }
    return many ? { kind: "Tuple", items: targets } : targets[0];
  }

  #signature() {
    const parameters = [];
    this.#expect("(");
    while (!this.#is(")")) {
      if (parameters.length) this.#expect(",");
      const name = this.#expect("name");
      parameters.push({ name, default: this.#skip("=") ? this.#expression() : null });
    }
    this.#expect(")");
    return { parameters };
  }

  // -- expressions -------------------------------------------------------------------------------------------------

  /** Parse one expression, or several with commas. @returns {Node} */
  #tuple({ conditional = true, parentheses = false } = {}) {
    const items = [];
    let many = false;
    for (;;) {
      if (this.#is("close") || this.#is(")") || this.#is("name", "in") || this.#is("name", "recursive")) break;
      items.push(conditional ? this.#expression() : this.#or());
      if (!this.#skip(",")) break;
      many = true;
    }
    if (!many && items.length) return items[0];
    if (!many && !parentheses) throw new TemplateError(`expected an expression, got ${this.#token.value}`);
    return { kind: "Tuple", items };
  }

  /** @returns {Node} */
  #expression() {
    let value = this.#or();
    while (this.#skip("name", "if")) {
      const test = this.#or();
      value = { kind: "Conditional", test, value, otherwise: this.#skip("name", "else") ? this.#expression() : null };
    }
    return value;
  }

  #or() {
    let left = this.#and();
    while (this.#skip("name", "or")) left = { kind: "Or", left, right: this.#and() };
    return left;
  }

  #and() {
    let left = this.#not();
    while (this.#skip("name", "and")) left = { kind: "And", left, right: this.#not() };
    return left;
  }

  /** @returns {Node} */
  #not() {
    return this.#skip("name", "not") ? { kind: "Not", value: this.#not() } : this.#comparison();
  }

  #comparison() {
    const first = this.#binary(0);
    const rest = [];
    for (;;) {
      if (COMPARISONS.includes(this.#token.type)) {
        const operator = this.#expect(this.#token.type);
        rest.push({ operator, value: this.#binary(0) });
      } else if (this.#skip("name", "in")) rest.push({ operator: "in", value: this.#binary(0) });
      else if (this.#is("name", "not") && this.#tokens[this.#at + 1].value === "in") {
        this.#at += 2;
        rest.push({ operator: "not in", value: this.#binary(0) });
      } else break;
    }
    return rest.length ? { kind: "Compare", first, rest } : first;
  }

  /** Sums, then ~, then products, then powers. @param {number} level @returns {Node} */
  #binary(level) {
    const operators = [["+", "-"], ["~"], ["*", "/", "//", "%"], ["**"]][level];
    if (!operators) return this.#unary(true);
    let left = this.#binary(level + 1);
    while (operators.includes(this.#token.type)) {
      const operator = this.#expect(this.#token.type);
      const right = this.#binary(level + 1);
      left = operator === "~" ? { kind: "Concat", left, right } : { kind: "Binary", operator, left, right };
    }
    return left;
  }

  /** @param {boolean} filtered @returns {Node} */
  #unary(filtered) {
    const sign = this.#is("-") || this.#is("+") ? this.#expect(this.#token.type) : null;
    const value = this.#postfix(sign ? { kind: "Sign", sign, value: this.#unary(false) } : this.#primary());
    return filtered ? this.#filters(value, false) : value;
  }

  /** @returns {Node} */
  #primary() {
    const { type, value } = this.#token;
    this.#at++;
    if (type === "name") {
      return CONSTANTS.has(value) ? { kind: "Constant", value: CONSTANTS.get(value) } : { kind: "Name", name: value };
    }
    if (type === "constant") return { kind: "Constant", value };
    if (type === "string") {
      let text = value;
      while (this.#is("string")) text += this.#expect("string");
      return { kind: "Constant", value: text };
    }
    if (type === "(") {
      const tuple = this.#tuple({ parentheses: true });
      this.#expect(")");
      return tuple;
    }
    if (type === "[") return { kind: "List", items: this.#listed("]", () => this.#expression()) };
    if (type === "{") {
      const pair = () => {
        const key = this.#expression();
        this.#expect(":");
        return { key, value: this.#expression() };
      };
      return { kind: "Dict", pairs: this.#listed("}", pair) };
    }
    throw new TemplateError(`unexpected ${value}`);
  }

  /** Parse items with commas between them, and optionally after the last. @template T @param {string} end @param {() => T} read @returns {T[]} */
  #listed(end, read) {
    const items = [];
    while (!this.#is(end)) {
      if (items.length) this.#expect(",");
      if (this.#is(end)) break;
      items.push(read());
    }
    this.#expect(end);
    return items;
  }

  /** @param {Node} node @returns {Node} */
  #postfix(node) {
    for (let result = node; ; ) {
      if (this.#skip(".")) {
        const { type, value } = this.#token;
        this.#at++;
        if (type === "name") result = { kind: "Attribute", value: result, name: value };
        else if (typeof value === "bigint") result = { kind: "Item", value: result, key: { kind: "Constant", value } };
        else throw new TemplateError(`expected a name, got ${value}`);
      } else if (this.#skip("[")) {
        const keys = this.#listed("]", () => this.#subscript());
        result = { kind: "Item", value: result, key: keys.length === 1 ? keys[0] : { kind: "Tuple", items: keys } };
      } else if (this.#is("(")) result = { kind: "Call", callee: result, ...this.#arguments() };
      else return result;
    }
  }

  /** @returns {Node} */
  #subscript() {
    const ends = () => this.#is("]") || this.#is(",") || this.#is(":");
    const start = this.#is(":") ? null : this.#expression();
    if (!this.#skip(":")) return /** @type {Node} */ (start);
    const stop = ends() ? null : this.#expression();
    const step = this.#skip(":") && !ends() ? this.#expression() : null;
    return { kind: "Slice", bounds: [start, stop, step] };
  }

  #arguments() {
    /** @type {Node[]} */
    const args = [];
    /** @type {[string, Node][]} */
    const named = [];
    /** @type {{list: Node | null, dict: Node | null}} */
    const spread = { list: null, dict: null };
    this.#expect("(");
    this.#listed(")", () => {
      if (this.#skip("**")) spread.dict = this.#expression();
      else if (this.#skip("*")) spread.list = this.#expression();
      else if (this.#is("name") && this.#tokens[this.#at + 1].type === "=") {
        const name = this.#expect("name");
        this.#at++;
        named.push([name, this.#expression()]);
      } else if (named.length || spread.list || spread.dict)
        throw new TemplateError("a positional argument after a named one");
      else args.push(this.#expression());
    });
    return { args, named, spread };
  }

  /** Parse filters, tests and calls after an expression; with `inline` the first filter has no bar. @param {Node | null} node @param {boolean} inline @returns {Node} */
  #filters(node, inline) {
    let result = node;
    for (let first = inline; ; first = false) {
      if (first || this.#skip("|")) {
        const name = this.#dotted();
        const rest = this.#is("(") ? this.#arguments() : { args: [], named: [], spread: { list: null, dict: null } };
        result = { kind: "Filter", value: result, name, ...rest };
      } else if (node !== null && this.#skip("name", "is")) result = this.#test(/** @type {Node} */ (result));
      else if (node !== null && this.#is("(")) result = { kind: "Call", callee: result, ...this.#arguments() };
      else return /** @type {Node} */ (result);
    }
  }

  #dotted() {
    let name = this.#expect("name");
    while (this.#skip(".")) name += `.${this.#expect("name")}`;
    return name;
  }

  /** @param {Node} value @returns {Node} */
  #test(value) {
    const not = this.#skip("name", "not");
    const name = this.#dotted();
    let rest = {
      args: /** @type {Node[]} */ ([]),
      named: /** @type {any[]} */ ([]),
      spread: { list: null, dict: null },
    };
    const { type, value: next } = this.#token;
    if (type === "(") rest = /** @type {any} */ (this.#arguments());
    else if (
      type === "name" ? !["else", "or", "and"].includes(next) : ["string", "constant", "[", "{"].includes(type)
    ) {
      if (next === "is") throw new TemplateError("tests cannot be chained with is");
      rest.args = [this.#postfix(this.#primary())];
    }
    const test = { kind: "Test", value, name, ...rest };
    return not ? { kind: "Not", value: test } : test;
  }
}
