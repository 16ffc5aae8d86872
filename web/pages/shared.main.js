/** Connect the page and the player. To use a bundle at another address, replace "./" by it. */

import { start } from "./page.js";
import { load } from "./player/src/index.js";

start({ root: document, load: (options) => load(new URL("./", location.href).href, options) });
