/** Connect the page and the player. To use a bundle at another address, replace "./" by it. */

import { start } from "./page.js";
import { inspect, load } from "./player/src/index.js";
import { offerThemes } from "./shared.js";

const { href } = new URL("./", location.href);
offerThemes();
start({ root: document, load: (options) => load(href, options), inspect: () => inspect(href) });
