// Parts of prompts, tokens and rows of embeddings, and of messages, texts and images.

// A row of embeddings has an id as a token has, above those of every vocabulary. Equal contents have equal ids, so the
// prefix cache has one comparison for both.
const FIRST_ID = 2 ** 32;
const MAX_ROWS = 2 ** 16; // of a tile

/** Return the ids of the rows of a tile. @param {number} tile its number @param {number} rows */
export const rowIds = (tile, rows) => Array.from({ length: rows }, (_, row) => FIRST_ID + MAX_ROWS * tile + row);
/** Return whether an id is that of a token. @param {number} id */
export const isToken = (id) => id < FIRST_ID;
/** Return the id of the first row of a tile. @param {number} id of any of its rows */
export const firstOf = (id) => id - (id % MAX_ROWS);

// Rows of a tile may see each other: one step computes all of them. A slot has whole tiles then. So has a prompt, which
// ends with text, so a common prefix does not end within a tile.

/** Return how many rows of its tile follow each id of a piece of a prompt. @param {number[]} ids */
export function rowsAfter(ids) {
  const after = ids.map(() => 0);
  for (let at = ids.length - 2; at >= 0; at--) {
    if (!isToken(ids[at]) && ids[at + 1] === ids[at] + 1) after[at] = after[at + 1] + 1;
  }
  return after;
}
/** Return how many of the first `count` ids there are without an end within a tile.
 * @param {number[]} ids @param {number} count */
export const wholeTiles = (ids, count) =>
  count < ids.length && !isToken(ids[count]) ? count - (ids[count] % MAX_ROWS) : count;

/** Return the parts of a message's content. @param {any} message @returns {any[]} */
export const partsOf = (message) => (Array.isArray(message?.content) ? message.content : []);
/** Return whether a part is an image. @param {any} part */
export const isImage = (part) => part?.type === "image" || part?.type === "image_url";
