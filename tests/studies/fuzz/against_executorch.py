"""`python -m tests.studies fuzz.against_executorch`: the same 1,120 damaged programs, given to ExecuTorch's wheel and
to us.

Each is loaded, and asked what its methods take: `method_meta` there, a plan here. Every file is read in a process of
its own, forked from one that has imported the reader, so that it may die or hang. Prints rows of docs/security.md.
"""

from __future__ import annotations

import collections
import logging
import os
import random
import signal
import struct
import time
from collections.abc import Callable

FILES = 1120
SECONDS = 10.0
WORDS = [0, 1, 2, 4, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF]


def honest_files() -> list[bytes]:
    """Small programs by ExecuTorch's own exporter, with kernels alone and with a delegate."""
    import torch
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import to_edge_transform_and_lower

    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)).eval()
    image = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Sigmoid()).eval()
    files = []
    for module, shape in ((layers, (2, 4)), (image, (1, 1, 5, 5)), (torch.nn.Softmax(-1), (3, 4))):
        program = torch.export.export(module, (torch.randn(*shape),))
        for partitioner in ([], [VulkanPartitioner({})]):
            executorch_program = to_edge_transform_and_lower(program, partitioner=partitioner).to_executorch()
            files.append(bytes(executorch_program.buffer))
    return files


def damaged_files() -> list[bytes]:
    """Words, flips and cuts; the same ones every time."""
    honest = honest_files()
    return [_damaged(honest[seed % len(honest)], random.Random(seed)) for seed in range(FILES)]


def _damaged(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    kind = chance.random()
    if kind < 0.1:
        return data[: chance.randrange(1, len(data))]
    for _ in range(chance.choice([1, 1, 2, 4])):
        if kind < 0.6:
            struct.pack_into("<I", changed, 4 * chance.randrange(len(data) // 4), chance.choice(WORDS))
        else:
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def wheel() -> Callable[[bytes], str]:
    """Load and `method_meta`, by ExecuTorch's own bindings."""
    from executorch.extension.pybindings import portable_lib

    def read(data: bytes) -> str:
        try:
            module = portable_lib._load_for_executorch_from_buffer(data)
            for name in module.method_names():
                module.method_meta(name).num_inputs()
        except Exception:
            return "refused"
        return "read"

    return read


def ours() -> Callable[[bytes], str]:
    """Load and plan."""
    from tests.studies.fuzz.targets import plan_program
    from webpte.errors import Error

    def read(data: bytes) -> str:
        try:
            plan_program(data)
        except Error:
            return "refused"
        except Exception:
            return "untyped error"
        return "read"

    return read


READERS = {"executorch": wheel, "webpte": ours}
OUTCOMES = ["read", "refused", "untyped error"]  # as exit codes of the process that reads one file


def outcome(read: Callable[[bytes], str], data: bytes) -> str:
    """Return how one file ends for a reader."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what a dying library says
        code = OUTCOMES.index(read(data))
        os._exit(code)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return f"died with {signal.Signals(-code).name}" if code < 0 else OUTCOMES[code]
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


def main() -> None:
    logging.disable()
    files = damaged_files()
    for who, prepare in READERS.items():
        read = prepare()
        counts = collections.Counter(outcome(read, data) for data in files)
        print(f"| {who} | {', '.join(f'{count:,} {kind}' for kind, count in counts.most_common())} |", flush=True)


if __name__ == "__main__":
    main()
