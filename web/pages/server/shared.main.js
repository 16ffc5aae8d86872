/** Connect the chat page and the server that it comes from. */

import { start } from "./page.js";
import { connect } from "./server.js";

document.getElementById("hint").textContent = "The model runs on this server. Chats are kept in this browser.";
start({ root: document, load: (options) => connect(document, options) });
