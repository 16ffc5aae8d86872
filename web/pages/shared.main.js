/** Where a page meets the player. To use a bundle that lies elsewhere, give its address instead of "./". */

import { start } from "./page.js";
import { load } from "./player/src/index.js";

start({ root: document, load: (options) => load(new URL("./", location.href).href, options) });
