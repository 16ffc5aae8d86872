// A GPU in memory: copies, writes and dispatches really happen, in the order of submission; kernels are functions.

class FakeBuffer {
  destroyed = false;

  constructor(device, { label, size, usage }) {
    this.device = device;
    this.label = label;
    this.size = size;
    this.usage = usage;
    this.data = new Uint8Array(size);
  }

  async mapAsync() {
    if (this.device.broken) throw this.device.broken;
  }

  getMappedRange(offset, size) {
    return this.data.buffer.slice(offset, offset + size);
  }

  unmap() {}

  destroy() {
    this.destroyed = true;
  }
}

/** What of the memory a range is. */
const view = ({ buffer, offset, size }) => buffer.data.subarray(offset, offset + size);

class FakeEncoder {
  commands = [];

  constructor(device) {
    this.device = device;
  }

  copyBufferToBuffer(from, start, to, at, size) {
    for (const number of [start, at, size]) if (number % 4) throw new Error(`a copy of ${number}, no multiple of 4`);
    if (start + size > from.size || at + size > to.size) throw new Error("a copy beyond the end of a buffer");
    if (from === to) throw new Error("a copy within a buffer");
    this.commands.push(() => to.data.set(from.data.slice(start, start + size), at));
  }

  clearBuffer(buffer) {
    this.commands.push(() => buffer.data.fill(0));
  }

  beginComputePass() {
    let pipeline;
    const groups = [];
    return {
      setPipeline: (next) => (pipeline = next),
      setBindGroup: (number, group) => (groups[number] = group),
      dispatchWorkgroups: (...grid) => {
        const [{ label }, uniforms, storage] = [pipeline, ...groups];
        this.commands.push(() => {
          const [parameters, live] = uniforms.entries.map(({ resource }) => view(resource));
          const bound = storage.entries.map(({ resource }) => view(resource));
          this.device.kernels[label](bound, { parameters, live: new Int32Array(live.slice().buffer), grid });
        });
      },
      end: () => {},
    };
  }

  finish() {
    return this.commands;
  }
}

export class FakeDevice {
  buffers = [];
  groups = [];
  modules = [];
  submits = 0;
  broken = null;
  lost = new Promise(() => {});

  constructor(kernels = {}) {
    this.kernels = kernels;
  }

  queue = {
    writeBuffer: (buffer, at, data, from = 0, count = data.length - from) => {
      const piece = data.subarray(from, from + count);
      if (at % 4 || piece.byteLength % 4) throw new Error("a write of no multiple of 4");
      buffer.data.set(new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength), at);
    },
    submit: (lists) => {
      if (lists.length) this.submits++;
      for (const command of lists.flat()) command();
    },
    onSubmittedWorkDone: async () => {},
  };

  createBuffer(options) {
    this.buffers.push(new FakeBuffer(this, options));
    return this.buffers.at(-1);
  }

  createCommandEncoder() {
    return new FakeEncoder(this);
  }

  createBindGroupLayout(options) {
    return options;
  }

  createBindGroup(options) {
    this.groups.push(options);
    return options;
  }

  createPipelineLayout(options) {
    return options;
  }

  createShaderModule({ code }) {
    this.modules.push(code);
    return { code };
  }

  async createComputePipelineAsync({ label }) {
    if (!this.kernels[label]) throw new Error(`no kernel ${label}`);
    return { label };
  }

  pushErrorScope() {}

  async popErrorScope() {
    return null;
  }
}

/** Call a function while `navigator.gpu` is this one. */
export async function withGPU(gpu, body) {
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  Object.defineProperty(globalThis, "navigator", { value: { gpu }, configurable: true });
  try {
    await body();
  } finally {
    delete globalThis.navigator;
    if (before) Object.defineProperty(globalThis, "navigator", before);
  }
}
