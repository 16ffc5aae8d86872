// An automaton over bytes that can count and nest: what a text consists of, and which states reading it leads through.
//
// An item is a piece of text yet to come. A state is a set of lists of items, any of which may come; lists share their
// tails and equal ones are one object, so that states reached in different ways are the same, and know what follows.

/** @typedef {{item: Item, next: List}} Link */
/** @typedef {Link | null} List null is the end of the text */

/** Something to come: what it may consist of (`open`), or which bytes it may begin with (`step`). */
export class Item {
  /** Lists that begin with it, by the list behind. @type {Map<List, Link>} */
  #links = new Map();

  /** @param {List} next @returns {Link} */
  before(next) {
    let found = this.#links.get(next);
    if (!found) {
      found = { item: this, next };
      this.#links.set(next, found);
    }
    return found;
  }

  /**
   * What it is instead, before the list `_next`; null where it begins with a byte.
   * @param {List} _next
   * @returns {List[] | null}
   */
  open(_next) {
    return null;
  }

  /**
   * What is left of it behind a byte; null where it does not begin with that.
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

/** Every item by its first byte. */
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

class Repeated extends Item {
  /** @type {Repeated | undefined} */
  #less;

  /** @param {Item} item @param {number} least @param {number} most */
  constructor(item, least, most) {
    super();
    this.item = item;
    this.least = least;
    this.most = most;
  }

  /** @param {List} next */
  open(next) {
    const lists = this.least > 0 ? [] : [next];
    if (this.most > 0) {
      const same = this.least === 0 && this.most === Infinity;
      this.#less ??= same ? this : new Repeated(this.item, Math.max(0, this.least - 1), this.most - 1);
      lists.push(this.item.before(this.#less.before(next)));
    }
    return lists;
  }
}

/** What is made when it is first needed, for it may contain itself. */
export class Later extends Item {
  /** @type {Item | undefined} */
  #item;

  /** @param {() => Item} make */
  constructor(make) {
    super();
    this.make = make;
  }

  get item() {
    this.#item ??= this.make();
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
/** What cannot come. */
export const NOTHING = new Choice([]);

/** @param {Item[]} items @returns {Item} */
export const sequence = (...items) => (items.includes(NOTHING) ? NOTHING : new Sequence(items));
/** @param {Item[]} items @returns {Item} */
export const choice = (...items) => {
  const possible = items.filter((item) => item !== NOTHING);
  return possible.length > 1 ? new Choice(possible) : (possible[0] ?? NOTHING);
};
/** @param {Item} item @returns {Item} */
export const repeated = (item, least = 0, most = Infinity) =>
  least > most ? NOTHING : new Repeated(item, least, most);
/** @param {string} text @returns {Item} */
export const text = (text) => (text ? new Text(new TextEncoder().encode(text), 0) : EMPTY);

/** What comes behind each byte of some ranges. @param {[number, number, Item?][]} ranges first, last, rest */
export function bytes(...ranges) {
  /** @type {(Item | null)[]} */
  const table = Array(256).fill(null);
  for (const [first, last, rest] of ranges) table.fill(rest ?? EMPTY, first, last + 1);
  return new Switch(table);
}

/** @typedef {{links: Link[], accepting: boolean, to: (State | null | undefined)[], mask: Int32Array | null}} State */

/** The states of one text. */
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
   * The state behind a byte; null if it cannot come.
   * @param {State} state
   * @param {number} byte
   * @returns {State | null}
   */
  step(state, byte) {
    let found = state.to[byte];
    if (found === undefined) {
      /** @type {List[]} */
      const lists = [];
      for (const { item, next } of state.links) {
        const rest = item.step(byte);
        if (rest) lists.push(rest === EMPTY ? next : rest.before(next));
      }
      found = state.to[byte] = lists.length ? this.#state(lists) : null;
    }
    return found;
  }

  /** Of the lists, with all that they may be instead. @param {List[]} lists @returns {State | null} */
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
      const opened = list.item.open(list.next);
      if (opened) {
        lists.push(...opened);
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
