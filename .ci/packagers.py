"""Write what other package managers build from: `python .ci/packagers.py dist` writes `recipe.yaml` and `webpte.rb`.

`recipe.yaml` is for conda-forge, `webpte.rb` a formula for Homebrew. Both take the source archive in the folder from
the release of its version, all else from pyproject.toml. `.ci/release` runs this.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"wgpu": "wgpu-py"}  # where a package has another name there
FORMULA_PYTHON = "3.13"
FORMULA_EXTRAS = "llm,server"  # a command for chats and a server: it runs programs of others, and exports none

RECIPE = """\
# Written by .ci/packagers.py from pyproject.toml.
schema_version: 1
context:
  version: "{version}"
package:
  name: webpte
  version: ${{{{ version }}}}
source:
  url: {url}
  sha256: {digest}
build:
  number: 0
  noarch: python
  script: ${{{{ PYTHON }}}} -m pip install . --no-deps --no-build-isolation -vv
  python:
    entry_points:
{commands}
requirements:
  host:
    - python {python}.*
    - pip
{building}
  run:
    - python >={python}
{running}
tests:
  - python:
      imports: [webpte]
      python_version: {python}.*
  - script: webpte --version
about:
  summary: {summary}
  license: {license}
  license_file: LICENSE
  homepage: {homepage}
  documentation: {documentation}
"""

FORMULA = """\
# Written by .ci/packagers.py from pyproject.toml.
class Webpte < Formula
  include Language::Python::Virtualenv

  desc "{summary}"
  homepage "{homepage}"
  url "{url}"
  sha256 "{digest}"
  license "{license}"

  depends_on "python@{python}"

  def install
    virtualenv_create(libexec, "python{python}", without_pip: false)
    system libexec/"bin/python", "-m", "pip", "install", "#{{buildpath}}[{extras}]"
    bin.install_symlink libexec/"bin/webpte"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/webpte --version")
  end
end
"""


def package_files(folder: Path) -> dict[str, str]:
    """Return the recipe and the formula by name, for the one source archive in a folder."""
    archives = list(folder.glob("webpte-*.tar.gz"))
    if len(archives) != 1:
        raise SystemExit(f"{folder}: expected one source archive, got {len(archives)}; run .ci/release")
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, links = document["project"], document["project"]["urls"]
    version = archives[0].name.removeprefix("webpte-").removesuffix(".tar.gz")
    shared = {
        "version": version,
        "url": f"{links['Source']}/releases/download/v{version}/{archives[0].name}",
        "digest": hashlib.sha256(archives[0].read_bytes()).hexdigest(),
        "summary": project["description"].rstrip("."),
        "license": project["license"],
        "homepage": links["Source"],
        "documentation": links["Documentation"],
    }
    commands = "\n".join(f"      - {name} = {target}" for name, target in project["scripts"].items())
    recipe = RECIPE.format(
        **shared,
        python=project["requires-python"].removeprefix(">="),
        commands=commands,
        building=_requirements(document["build-system"]["requires"]),
        running=_requirements(project["dependencies"]),
    )
    return {"recipe.yaml": recipe, "webpte.rb": FORMULA.format(**shared, python=FORMULA_PYTHON, extras=FORMULA_EXTRAS)}


def _requirements(requirements: list[str]) -> str:
    return "\n".join(f"    - {_in_conda(each)}" for each in requirements)


def _in_conda(requirement: str) -> str:
    """Return `numpy >=2.0` for `numpy>=2.0`."""
    split = re.fullmatch(r"([\w-]+)(.*)", requirement)
    assert split, f"{requirement}: expected a name and bounds"
    return f"{CONDA_NAMES.get(split[1], split[1])} {split[2]}".strip()


def main(folder: Path) -> None:
    for name, text in package_files(folder).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
