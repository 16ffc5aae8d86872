"""Bundles as they are read: which variant a device gets, and what is refused of one that is damaged or made up."""

from __future__ import annotations

import hashlib
import json
import shutil
from random import Random

import numpy as np
import pytest

import webpte
from tests.studies.fuzz.documents import changed, ways_by_field
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte.bundles.methods import TARGETS
from webpte.container import DType, VkInt, VkTensor
from webpte.llm.engine.bundled_runner import STEP_COST_TOKENS, piece, split
from webpte.llm.engine.runner import BatchToken
from webpte.runtime import Bundle, load_program
from webpte.runtime.bundle import choose
from webpte.runtime.manifest import read_manifest
from webpte.wgsl import Caps

WIDE = Caps(features=frozenset({"subgroup", "shader-f16"}), subgroup=32)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """y = x + table, as a bundle."""
    folder = tmp_path_factory.mktemp("bundle")
    row = VkTensor(DType.FLOAT32, (5, 7))
    values = [row, VkTensor(DType.FLOAT32, (5, 7), constant_id=0), VkInt(1), row]
    table = np.arange(35, dtype=np.float32).reshape(5, 7)
    simple_pte(folder / "add.pte", values, [("aten.add.Tensor", (0, 1, 2, 3))], [0], [3], [table])
    with webpte.load(folder / "add.pte") as program:
        webpte.bundle(program, folder / "site")
    return folder / "site"


@pytest.fixture
def copy(site, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    return tmp_path / "site"


def play(folder):
    """All that is read before a device is asked for: every plan, kernel and shard."""
    with webpte.load(folder) as bundle:
        return [bundle.plan(caps=caps) for caps in TARGETS]


def opened(folder):
    result = webpte.load(folder)
    assert isinstance(result, Bundle)
    return result


def with_manifest(folder, text):
    """The manifest with another body, under the right hash."""
    body = text.encode("ascii")[1:]
    (folder / "manifest.json").write_bytes(b'{"sha256":"%s",' % hashlib.sha256(body).hexdigest().encode() + body)


def body_of(folder):
    document = json.loads((folder / "manifest.json").read_text())
    del document["sha256"]
    return document


def test_bundle_plan_equals_program_plan(site):
    for plan in play(site):
        assert set(plan.dynamic_dims.values()) == {(False, False)}
        assert plan.bytes_by_kind()["constant"] == 144  # 35 floats, padded


FLIPPED = ("hash_mismatch", "bad_magic")  # the second: in the part of the manifest before what is hashed


def test_bundle_flipped_byte_refused_with_file_name(copy):
    files = [copy / "manifest.json", *sorted((copy / "files").iterdir())]
    assert {path.suffix for path in files} == {".json", ".wgsl", ".bin"}
    random = Random(3)
    for path in files:
        honest = path.read_bytes()
        for at in (0, len(honest) - 1, *(random.randrange(len(honest)) for _ in range(8))):
            path.write_bytes(honest[:at] + bytes([honest[at] ^ 1 << random.randrange(8)]) + honest[at + 1 :])
            with pytest.raises(webpte.FormatError) as caught:
                play(copy)
            assert path.name in str(caught.value) and caught.value.reason in FLIPPED
        path.write_bytes(honest)
    assert play(copy)


def test_bundle_truncated_or_missing_file_is_named(copy):
    for path in sorted((copy / "files").iterdir()):
        honest = path.read_bytes()
        path.write_bytes(honest[:-1])
        with raises(webpte.FormatError, path.name, f" {len(honest) - 1} bytes", len(honest), code="hash_mismatch"):
            play(copy)
        path.unlink()
        with raises(webpte.FormatError, path.name, code="unreadable"):
            play(copy)
        path.write_bytes(honest)


@pytest.mark.parametrize(
    ("way", "value", "code", "expected"),
    [
        (("kind",), "virus", "unknown_kind", ["'virus'", "language"]),
        (("version",), 1, "unknown_version", ["version 2", "got version 1", "webpte bundle"]),
        (("version",), 3, "unknown_version", ["version 2", "got version 3", "later"]),
        (("format",), "zip", "bad_magic", ["webpte bundle"]),
        (("methods", "forward", "variants", 0, "plan"), "0" * 64, "unknown_file", ["0" * 64]),
        (("methods", "forward", "variants", 0, "device"), "tpu", "unknown_device", ["'tpu'"]),
        (("methods", "forward", "variants", 0, "limits"), {"max-fun": 1}, "unknown_limit", ["'max-fun'"]),
        (
            ("methods", "forward", "variants", 0, "cache_slots"),
            0,
            "invalid_field",
            ["cache_slots: ", "got 0", "1 to 4096"],
        ),
        (("name",), "a\nb", "invalid_field", ["name: ", "got 'a\\nb'"]),
    ],
)
def test_manifest_invalid_is_refused(copy, way, value, code, expected):
    document = body_of(copy)
    inner = document
    for step in way[:-1]:
        inner = inner[step]
    inner[way[-1]] = value
    with_manifest(copy, json.dumps(document))
    with raises(webpte.FormatError, "manifest.json", *expected, code=code):
        read_manifest(copy)


def test_names_of_files_lead_nowhere_else(copy):
    document = body_of(copy)
    entry = next(iter(document["files"].values()))
    for path in ("../outside.bin", "/etc/hostname", "files/../manifest.json"):
        entry["path"] = path
        with_manifest(copy, json.dumps(document))
        with raises(webpte.FormatError, repr(path), code="file_name"):
            read_manifest(copy)


def test_manifest_random_change_raises_typed_error(copy):
    text = json.dumps(body_of(copy))
    random, fields = Random(7), ways_by_field(text)
    for way in [way for ways in fields.values() for way in ways[:3]]:
        with_manifest(copy, changed(text, way, random))
        try:
            play(copy)
        except webpte.Error:
            continue


def test_bundle_device_gets_first_variant_it_supports(site):
    with opened(site) as bundle:
        variants = bundle.manifest.methods["forward"]
        assert [v.device for v in variants] == ["gpu", "cpu"]  # an addition gains nothing by subgroups
        for caps, expected in ((WIDE, 0), (Caps(), 0), (Caps(kind="cpu"), 1)):
            assert choose(variants, caps, "forward") is variants[expected]
        small = Caps().within({"max-storage-buffers-per-shader-stage": 2})
        with raises(
            webpte.DeviceError, "forward", "max-storage-buffers-per-shader-stage of 3", "has 2", code="no_variant"
        ):
            bundle.plan(caps=small)


def test_bundle_options_that_need_graph_are_refused(site):
    with raises(webpte.InputError, site, "fallback", code="already_planned"):
        webpte.load(site, fallback="cpu")
    with raises(webpte.InputError, site, ".pte", code="already_planned"):
        load_program(site)
    with opened(site) as bundle:
        assert not isinstance(bundle, webpte.Program)
        for ask in (bundle.plan, bundle.method):
            with raises(webpte.InputError, site, "rewrite", code="already_planned"):
                ask(rewrite=lambda graph: graph)
        with raises(webpte.InputError, "'backward'", "forward", code="unknown_method"):
            bundle.plan("backward")
        with raises(webpte.InputError, "slots", "forward", "got 3", code="unknown_slots"):
            bundle.method(slots=3)
    with pytest.raises(webpte.ClosedError):
        bundle.plan()


def test_rows_are_split_into_the_passes_that_cost_least():
    sizes = (8, 16, 32, 64, 128)
    assert split(0, sizes) == () and split(1, sizes) == (8,) and split(9, sizes) == (16,)
    assert split(100, sizes) == (64, 32, 8)
    for count in range(1, 700):
        result = split(count, sizes)
        assert sum(result) - result[-1] < count <= sum(result) and set(result) <= set(sizes)
        cost = sum(result) + STEP_COST_TOKENS * len(result)
        assert cost <= -(-count // 128) * (128 + STEP_COST_TOKENS)


def test_tokens_that_see_each_other_are_in_one_step():
    """An image of 7 rows and one of 13 between others; its rows are counted by `later`."""
    later = [0] * 8 + [*range(6, -1, -1)] + [*range(12, -1, -1)] + [0] * 2
    rest = [BatchToken(1, 0, position, later=each) for position, each in enumerate(later)]
    pieces = []
    while rest:
        pieces.append(piece(rest, (8, 13)))
        rest = rest[pieces[-1][0] :]
    assert pieces == [(8, 8), (7, 8), (13, 13), (2, 8)]
    assert piece([BatchToken(1, 0, 0)] * 25, (8, 16)) == (16, 16)
    assert piece([BatchToken(1, 0, 0)] * 3, (8, 16)) == (3, 8)
