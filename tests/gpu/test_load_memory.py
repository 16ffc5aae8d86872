"""Loading does not hold the weights twice.

A child process loads a 300 MB program while a thread samples its anonymous and shared memory; file-backed pages (the
mapping itself) are counted apart by the kernel and left out. On lavapipe a GPU buffer is ordinary memory, so the bytes
of all buffers the plan lists are subtracted from the growth. What remains is what loading cost.
"""

from __future__ import annotations

import itertools
import json
import struct
import sys
from functools import partial

import numpy as np
import pytest

import webpte
from tests.gpu.test_loading import W, add_program
from tests.support.harness.children import run_python
from tests.support.harness.writer import Stream, simple_pte
from webpte.container import DType, VkNull, VkTensor

ROWS, COLUMNS, LAYERS = 25000, 1000, 3  # 100 MB each
BASE_OFFSET = 24  # where a .pte says at which byte its segments begin

CHILD = """
import json, sys, threading, time
import numpy as np
import webpte
from webpte.device import acquire

def resident():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))

gpu = acquire({})  # the driver itself is not what we measure
peak, stop = 0, False
def sample():
    global peak
    while not stop:
        peak = max(peak, resident())
        time.sleep(0.002)

start = resident()
thread = threading.Thread(target=sample)
thread.start()
with webpte.load(sys.argv[1]) as program:
    forward = program.method()
    stop = True
    thread.join()
    y = forward(np.ones((1, 1000), np.float32))
    gpu_bytes = sum(b.nbytes for b in forward.plan.buffers)
    written = forward.counters.constant_bytes
print(json.dumps({"growth": peak - start, "gpu": gpu_bytes, "written": written, "y": float(y.sum())}))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_of_a_300_mb_load(tmp_path):
    values = [VkTensor(DType.FLOAT32, (1, COLUMNS)), VkNull()]
    calls, constants, outputs = [], [], []
    for layer in range(LAYERS):
        values.append(VkTensor(DType.FLOAT32, (ROWS, COLUMNS), constant_id=layer))
        values.append(VkTensor(DType.FLOAT32, (1, ROWS)))
        calls.append(("aten.linear.default", (0, len(values) - 2, 1, len(values) - 1)))
        outputs.append(len(values) - 1)
        row = np.full(COLUMNS, layer + 1, np.float32).tobytes()
        constants.append(Stream(ROWS * COLUMNS * 4, partial(itertools.repeat, row, ROWS)))
    path = tmp_path / "large.pte"
    simple_pte(path, values, calls, [0], outputs[-1:], constants)
    assert path.stat().st_size > 300e6
    data = json.loads(run_python(CHILD, path))
    assert data["y"] == 3 * COLUMNS * ROWS
    assert data["written"] == LAYERS * ROWS * COLUMNS * 4
    extra = data["growth"] - data["gpu"]
    print(f"\n300 MB load: grew {data['growth'] / 1e6:.0f} MB, of it {data['gpu'] / 1e6:.0f} MB GPU buffers")
    assert extra <= 64e6, f"{extra / 1e6:.0f} MB beyond the file and the GPU's own memory"


def test_constants_that_begin_beyond_4_gb(tmp_path, device):
    """A file of 5 GB, nearly all of it a hole: no offset is cut to 32 bits on the way."""
    small, large = tmp_path / "small.pte", tmp_path / "large.pte"
    add_program(small)
    data = bytearray(small.read_bytes())
    (base,) = struct.unpack_from("<Q", data, BASE_OFFSET)
    assert 0 < base < len(data)
    far = base + 5 * 2**30
    struct.pack_into("<Q", data, BASE_OFFSET, far)
    with open(large, "wb") as file:
        file.write(data[:base])
        file.seek(far)
        file.write(data[base:])
    assert large.stat().st_size > 5e9
    x = np.ones((5, 7), np.float32)
    with webpte.load(large) as program:
        assert np.array_equal(program.method()(x), x + W)
