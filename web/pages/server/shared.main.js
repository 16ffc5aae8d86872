/** Connect the chat page and the server that it comes from. */

import { start } from "./page.js";
import { connect } from "./server.js";

start({ root: document, load: (options) => connect(document, options) });
