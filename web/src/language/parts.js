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

/** Return the parts of a message's content. @param {any} message @returns {any[]} */
export const partsOf = (message) => (Array.isArray(message?.content) ? message.content : []);
/** Return whether a part is an image. @param {any} part */
export const isImage = (part) => part?.type === "image" || part?.type === "image_url";
