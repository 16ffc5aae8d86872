"""`python -m tests.studies catalog.generate FOLDER [SUITE...]`: the wheel's catalog, its pattern graphs traced only
once."""

from __future__ import annotations

import sys


def main(folder: str, suites: list[str]) -> None:
    from executorch.backends.webgpu.test.op_tests.generate_op_tests import generate

    from tests.support.export.lowering import cache_patterns, quiet

    cache_patterns()
    with quiet():
        checks = generate(folder, suites or None)
    print(f"{len(checks)} checks", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
