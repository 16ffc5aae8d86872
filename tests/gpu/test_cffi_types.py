"""C types found without a parser are the types that the parser finds."""

from __future__ import annotations

import json

import pytest

from tests.support.harness.children import run_python

ASK = """
import json
from wgpu.backends.wgpu_native._api import ffi
parse = ffi._parser.parse_type  # the usual one, before ours takes its place
from webpte.device import recording
wrong, quick = [], []
for text in json.loads(TEXTS):
    found = recording._find(__import__("cffi").model, ffi._parser._declarations, text)
    if found is None:
        continue
    quick.append(text)
    usual = parse(text)
    pair = [kind.as_function_pointer() if kind.is_raw_function else kind for kind in (found, usual)]
    with ffi._lock:
        if ffi._get_cached_btype(pair[0]) is not ffi._get_cached_btype(pair[1]):
            wrong.append(text)
print(json.dumps([quick, wrong]))
"""
LISTEN = """
import json
from wgpu.backends.wgpu_native import _api
from webpte.device import recording
asked, parse = [], _api.ffi._parser.parse_type
def listen(text):
    asked.append(text)
    return parse(text)
_api.ffi._parser.parse_type = listen
from webpte.device.gpu import acquire
gpu = acquire({})
buffer = gpu.create_buffer("b", 64, 0x9)
gpu.write(buffer, 0, bytes(64))
gpu.submit([((), ())])
gpu.read(buffer, 64)
print(json.dumps(asked))
"""


@pytest.mark.usefixtures("device")
def test_cffi_types_patched_equal_parser():
    texts = [*json.loads(run_python(LISTEN)), "WGPUBuffer const *", "struct WGPULimits *", "char []", "void *"]
    assert len(texts) > 15
    quick, wrong = json.loads(run_python(f"TEXTS = {json.dumps(json.dumps(texts))}\n{ASK}"))
    assert wrong == []
    assert len(quick) >= 0.8 * len(texts)  # a wgpu-py that asks otherwise would be slow again
