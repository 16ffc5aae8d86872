"""The packages that CI installs are pinned: `.ci/constraints.txt`, which `.ci/lock` writes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
LINES = [line for line in (ROOT / ".ci" / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
PINS = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LINES)}


def requirements(entries: list[Any]) -> Iterator[Requirement]:
    """Yield the requirements of a group or an extra, with those of the groups and extras that it includes."""
    for entry in entries:
        if isinstance(entry, dict):
            yield from requirements(PROJECT["dependency-groups"][entry["include-group"]])
            continue
        requirement = Requirement(entry)
        if requirement.name == "webpte":
            for extra in requirement.extras:
                yield from requirements(EXTRAS[extra])
        else:
            yield requirement


def test_constraints_are_exact_versions_without_an_index_or_a_local_version():
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line) for line in LINES)
    assert len(PINS) == len(LINES) and "webpte" not in PINS and "pip" in PINS


@pytest.mark.parametrize("group", [*PROJECT["dependency-groups"], None])
def test_constraints_pin_every_requirement_within_its_bounds(group):
    entries = PROJECT["dependency-groups"][group] if group is not None else PROJECT["project"]["dependencies"]
    for requirement in requirements(entries):
        pin = PINS.get(canonicalize_name(requirement.name))
        assert pin is not None and requirement.specifier.contains(pin), f"{requirement}: pinned to {pin}"


@pytest.mark.parametrize("file", [".ci/run", ".ci/nightly", ".github/workflows/ci.yml", ".readthedocs.yaml"])
def test_constraints_cover_ci_installations(file):
    text = (ROOT / file).read_text().replace("\\\n", "")
    commands = re.findall(r"pip\"? install (.*)", text)
    assert commands
    assert all("-c .ci/constraints.txt" in command or "--no-deps" in command for command in commands), commands


def test_gate_environment_is_keyed_by_the_constraints():
    key = re.search(r"key=\$\((.*?)sha256sum", (ROOT / ".ci" / "run").read_text(), re.DOTALL)
    assert key is not None and "cat .ci/constraints.txt" in key[1]
