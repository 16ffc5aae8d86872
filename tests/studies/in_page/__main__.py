"""A language model in a page: `python -m tests.studies in_page MODEL.pte [--tokens 64] [--only equal visits ...]`.

Its bundle is served on loopback to a real Chromium, on SwiftShader: tokens as natively on the same driver, what a
second visit loads, downloads that are cut or damaged, memory, devices that are lost, aborts, and several conversations
at once. Ends with status 1 if anything is not as promised.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import webpte
from tests.support.harness.browser import WEBGPU, chromium
from tests.support.harness.site_server import serving

from .proofs import PROOFS, Proof, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies in_page", description=__doc__)
    parser.add_argument("model", type=Path, help="a language model with its tokenizer beside it")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer that is compared")
    parser.add_argument("--only", nargs="+", choices=PROOFS, default=list(PROOFS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        with webpte.load(options.model) as program:
            webpte.bundle(program, site)
        with serving({"site": site}) as server, chromium(*WEBGPU) as browser:
            good = list(run(Proof(options.model, site, server, browser, options.tokens), options.only))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
