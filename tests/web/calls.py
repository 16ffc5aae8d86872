"""Arrays on their way to a page, or to the player outside pages, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from playwright.sync_api import Page

from tests.support.harness.node import NodePage

Host = Page | NodePage
OPEN = """async ([url, options]) => {
  const { openProgram } = await import(globalThis.player ?? "/web/src/index.js");
  globalThis.program = await openProgram(url, options);
  return globalThis.program.kind;
}"""
RUN = """async ([name, args, outputs]) => {
  try {
    const method = await globalThis.program.method(name);
    const results = await method.run(args, { outputs: outputs ?? undefined });
    return results.map(({ data, dims, dtype }) => ({ data: Array.from(data), dims, dtype }));
  } catch (error) {
    throw new Error(`${error.code}: ${error.message}`);
  }
}"""


def argument(array: np.ndarray) -> Any:
    """Return what the player takes for an array."""
    return {"data": np.asarray(array).ravel().tolist(), "dims": list(np.shape(array))}


def array(result: Any) -> np.ndarray:
    names = {"f16": "float32", "bf16": "float32", "f32": "float32", "f64": "float64", "bool": "bool"}
    dtype = names.get(result["dtype"]) or result["dtype"].replace("i", "int").replace("u", "uint", 1)
    return np.array(result["data"], dtype).reshape(result["dims"])


def open_program(host: Host, url: str) -> str:
    kind: str = host.evaluate(OPEN, [url, {}])
    return kind


def run(
    host: Host, args: Sequence[np.ndarray], method: str = "forward", outputs: Sequence[int] | None = None
) -> list[np.ndarray]:
    expected = None if outputs is None else list(outputs)
    return [array(actual) for actual in host.evaluate(RUN, [method, [argument(a) for a in args], expected])]


LOAD = """async ([url, worker]) => {
  const { load } = await import(globalThis.player ?? "/web/src/index.js");
  globalThis.events = [];
  try {
    globalThis.model = await load(url, { worker, onProgress: (event) => globalThis.events.push(event) });
  } catch (error) {
    throw new Error(`${error.code}: ${error.message}`);
  }
  for (const type of ["lost", "recovered"]) {
    globalThis.model.addEventListener(type, () => globalThis.events.push({ stage: type }));
  }
}"""
CALL = """async ([args, options]) => {
  try {
    const results = await globalThis.model.run(args, options);
    return results.map(({ data, dims, dtype }) => ({ data: Array.from(data), dims, dtype }));
  } catch (error) {
    throw new Error(`${error.code}: ${error.message}`);
  }
}"""


def load(host: Host, url: str, worker: bool = True) -> None:
    """Load `globalThis.model`; its events are in `globalThis.events`."""
    host.evaluate(LOAD, [url, worker])


def call(host: Host, args: Sequence[np.ndarray], **options: Any) -> list[np.ndarray]:
    """Return what the loaded model gives."""
    return [array(result) for result in host.evaluate(CALL, [[argument(a) for a in args], options])]
