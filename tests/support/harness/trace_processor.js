// Serves Perfetto's trace processor, in the build its user interface has, on a Unix socket.
//
//     node trace_processor.js FOLDER SOCKET
//
// FOLDER holds engine_bundle.js and trace_processor.wasm. The bundle expects to be a web worker: it is given what it
// asks a worker for. What comes in on the socket goes to the processor as it is, and what it answers goes back.
const fs = require("fs");
const net = require("net");
const path = require("path");
const vm = require("vm");

const [folder, socket] = process.argv.slice(2);

class XMLHttpRequest {
  open(method, url) {
    this.url = url;
  }
  send() {
    this.response = fs.readFileSync(path.join(folder, this.url));
    this.status = 200;
  }
}

const silent = () => {};
const worker = {
  XMLHttpRequest,
  TextDecoder,
  TextEncoder,
  URL,
  performance,
  setTimeout,
  crypto: globalThis.crypto,
  console: { log: silent, warn: silent, error: console.error },
  location: { href: "file:///engine_bundle.js" },
  WorkerGlobalScope: silent,
};
worker.self = worker;
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);

const port = { postMessage: (data) => port.connection.write(Buffer.from(data)) };
worker.onmessage({ data: port });
const WorkerArray = vm.runInContext("Uint8Array", worker); // the processor tells arrays of another realm apart

net
  .createServer((connection) => {
    port.connection = connection;
    connection.on("data", (data) => port.onmessage({ data: WorkerArray.from(data) }));
    connection.on("close", () => process.exit());
  })
  .listen(socket);
