/** Connect the chat page and the server that it comes from. */

import { start } from "./page.js";
import { connect } from "./server.js";
import { offerThemes } from "./shared.js";

document.getElementById("where").textContent = "The model runs on this server. Chats are kept in this browser.";
offerThemes();
start({ root: document, load: (options) => connect(document, options) });
