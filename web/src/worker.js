/** The worker's side of a model: a module worker that a page starts. */
import { serveModel } from "./model_thread.js";

serveModel(/** @type {any} */ (self));
