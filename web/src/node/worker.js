/** The side of a model that runs in a thread of Node, Deno or Bun. */
import { parentPort, workerData } from "node:worker_threads";
import { serveModel } from "../model_thread.js";
import { fetchOrRead, provideWebGPU } from "./platform.js";

await provideWebGPU(workerData.matrixUnits);
serveModel(/** @type {any} */ (parentPort), fetchOrRead);
