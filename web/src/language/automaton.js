// An automaton over bytes with counters and nesting.
//
// An item matches a part of the remaining text. A state is a set of lists of items: the rest of the text matches one of
// them. Lists share their tails, and equal lists are one object. So equal states are one object too, and cache their
// transitions and masks.

/** @typedef {{item: Item, next: List}} Link */
/** @typedef {Link | null} List null is the end of the text */

/** A part of the remaining text: it expands to lists of items (`open`), or starts with a byte (`step`). */
export class Item {
  /** Lists that start with this item, by their tail. @type {Map<List, Link>} */
  #links = new Map();

  /** @param {List} next @returns {Link} */
  before(next) {
    let link = this.#links.get(next);
    if (!link) {
      link = { item: this, next };
      this.#links.set(next, link);
    }
    return link;
  }

  /**
   * Return the lists that it expands to before the list `_next`; null if it starts with a byte.
   * @param {List} _next
   * @returns {List[] | null}
   */
  open(_next) {
    return null;
  }

  /**
   * Return the rest of it after a byte; null if it does not start with that byte.
   * @param {number} _byte
   * @returns {Item | null}
   */
  step(_byte) {
    return null;
  }

  /** Whether it may end here. */
  get done() {
    return false;
  }
}

/** The rest of the text by its first byte. */
export class Switch extends Item {
  /** @param {(Item | null)[]} table of 256 */
  constructor(table) {
    super();
    this.table = table;
  }

  /** @param {number} byte */
  step(byte) {
    return this.table[byte] ?? null;
  }
}

class Sequence extends Item {
  /** @param {Item[]} items */
  constructor(items) {
    super();
    this.items = items;
  }

  /** @param {List} next */
  open(next) {
    return [this.items.reduceRight((list, item) => item.before(list), next)];
  }
}

class Choice extends Item {
  /** @param {Item[]} items */
  constructor(items) {
    super();
    this.items = items;
  }

  /** @param {List} next */
  open(next) {
    return this.items.map((item) => item.before(next));
  }
}

class Repetition extends Item {
  /** @type {Repetition | undefined} */
  #rest;

  /** @param {Item} item @param {number} min @param {number} max */
  constructor(item, min, max) {
    super();
    this.item = item;
    this.min = min;
    this.max = max;
  }

  /** @param {List} next */
  open(next) {
    const lists = this.min > 0 ? [] : [next];
    if (this.max > 0) {
      const unlimited = this.min === 0 && this.max === Infinity;
      this.#rest ??= unlimited ? this : new Repetition(this.item, Math.max(0, this.min - 1), this.max - 1);
      lists.push(this.item.before(this.#rest.before(next)));
    }
    return lists;
  }
}

/** An item that is constructed on first use, because it may contain itself. */
export class Lazy extends Item {
  /** @type {Item | undefined} */
  #item;

  /** @param {() => Item} construct */
  constructor(construct) {
    super();
    this.construct = construct;
  }

  get item() {
    this.#item ??= this.construct();
    return this.#item;
  }

  /** @param {List} next */
  open(next) {
    return [this.item.before(next)];
  }
}

class Text extends Item {
  /** @type {Item | undefined} */
  #rest;

  /** @param {Uint8Array} bytes @param {number} at */
  constructor(bytes, at) {
    super();
    this.bytes = bytes;
    this.at = at;
  }

  /** @param {number} byte @returns {Item | null} */
  step(byte) {
    if (this.bytes[this.at] !== byte) return null;
    this.#rest ??= this.at + 1 < this.bytes.length ? new Text(this.bytes, this.at + 1) : EMPTY;
    return this.#rest;
  }
}

class Empty extends Item {
  /** @param {List} next */
  open(next) {
    return [next];
  }
}

export const EMPTY = new Empty();
/** It matches no text. */
export const NOTHING = new Choice([]);

/** @param {Item[]} items @returns {Item} */
export const sequence = (...items) => (items.includes(NOTHING) ? NOTHING : new Sequence(items));
/** @param {Item[]} items @returns {Item} */
export const choice = (...items) => {
  const possible = items.filter((item) => item !== NOTHING);
  return possible.length > 1 ? new Choice(possible) : (possible[0] ?? NOTHING);
};
/** @param {Item} item @returns {Item} */
export const repeat = (item, min = 0, max = Infinity) => (min > max ? NOTHING : new Repetition(item, min, max));
/** @param {string} text @returns {Item} */
export const text = (text) => (text ? new Text(new TextEncoder().encode(text), 0) : EMPTY);

/** Return an item of one byte of some ranges and the rest after it. @param {[number, number, Item?][]} ranges first, last, rest */
export function bytes(...ranges) {
  /** @type {(Item | null)[]} */
  const table = Array(256).fill(null);
  for (const [first, last, rest] of ranges) table.fill(rest ?? EMPTY, first, last + 1);
  return new Switch(table);
}

/** @typedef {{links: Link[], accepting: boolean, to: (State | null | undefined)[], mask: Int32Array | null}} State */

/** The states of one grammar, constructed on first use. */
export class Automaton {
  /** @type {Map<string, State>} */
  #states = new Map();
  /** @type {Map<Link, number>} */
  #numbers = new Map();
  start;

  /** @param {Item} item the whole text */
  constructor(item) {
    this.start = this.#state([item.before(null)]);
  }

  /**
   * Return the state after a byte; null if the byte is not allowed.
   * @param {State} state
   * @param {number} byte
   * @returns {State | null}
   */
  step(state, byte) {
    let next = state.to[byte];
    if (next === undefined) {
      /** @type {List[]} */
      const lists = [];
      for (const { item, next: tail } of state.links) {
        const rest = item.step(byte);
        if (rest) lists.push(rest === EMPTY ? tail : rest.before(tail));
      }
      next = state.to[byte] = lists.length ? this.#state(lists) : null;
    }
    return next;
  }

  /** Return the state of lists, after expanding them. @param {List[]} lists @returns {State | null} */
  #state(lists) {
    /** @type {Set<List>} */
    const seen = new Set();
    /** @type {Link[]} */
    const links = [];
    while (lists.length) {
      const list = /** @type {List} */ (lists.pop());
      if (seen.has(list)) continue;
      seen.add(list);
      if (!list) continue;
      const expansion = list.item.open(list.next);
      if (expansion) {
        lists.push(...expansion);
      } else {
        links.push(list);
        if (list.item.done) lists.push(list.next);
      }
    }
    const accepting = seen.has(null);
    if (!links.length && !accepting) return null;
    const key =
      links
        .map((link) => this.#number(link))
        .sort()
        .join() + accepting;
    let state = this.#states.get(key);
    if (!state) {
      state = { links, accepting, to: Array(256), mask: null };
      this.#states.set(key, state);
    }
    return state;
  }

  /** @param {Link} link */
  #number(link) {
    let number = this.#numbers.get(link);
    if (number === undefined) {
      number = this.#numbers.size;
      this.#numbers.set(link, number);
    }
    return number;
  }
}
