"""Choosing among kernels: the tuned one of those whose needs are met, else the first for the kind of device."""

from __future__ import annotations

import pytest

from webpte.device.adapter import vendor_of
from webpte.graph import Call, Origin
from webpte.lowering import ANYWHERE, Context, MethodContext, Requirements, Variant
from webpte.ops.q4.linear_q4_kernels import _lanes_variants, multiplies_pairs
from webpte.wgsl import AMD, APPLE, ARM, INTEL, Caps

TILE = Variant("tile", ANYWHERE, 1)
BROADCAST = Variant("broadcast", Requirements(subgroup=4), 2)
SHARED = Variant("shared", Requirements(workgroup=64), 3)
ALIGNED = Variant("aligned", Requirements(work=lambda columns: columns % 4 == 0), 4)
SMALL = {"max-compute-invocations-per-workgroup": 32}


def context(caps: Caps, tuning: dict[str, str], sequences: bool = False) -> Context:
    method = MethodContext(caps, 0, tuning, sequences=sequences)
    return Context(method, 0, "ops", Call("toy.work.default", (), (), Origin(0)))


def chosen(caps: Caps, tuned: str = "", columns: int = 8) -> tuple[str, tuple[str, ...]]:
    """The variant that is taken, and what `webpte tune` could choose from."""
    cx = context(caps, {"work 8 f32": tuned})
    variant = cx.variant("work", (8, "f32"), cpu=(BROADCAST, TILE), gpu=(ALIGNED, SHARED, TILE), work=columns)
    (key,) = cx.tuning_keys
    assert key.key == "work 8 f32"
    return variant.name, key.names


@pytest.mark.parametrize(
    ("caps", "names"),
    [
        (Caps(kind="cpu", subgroup=8), ("broadcast", "tile", "aligned", "shared")),
        (Caps(kind="cpu", subgroup=2), ("tile", "aligned", "shared")),
        (Caps(kind="gpu", subgroup=4), ("aligned", "shared", "tile", "broadcast")),
        (Caps(kind="gpu", limits=SMALL), ("aligned", "tile")),
    ],
    ids=["cpu", "small subgroups", "gpu", "small workgroups"],
)
def test_variant_kind_of_device_first_and_needs_met(caps, names):
    assert chosen(caps) == (names[0], names)


def test_needs_are_asked_about_the_work():
    assert chosen(Caps(), columns=9) == ("shared", ("shared", "tile"))


@pytest.mark.parametrize(
    ("tuned", "expected"), [("tile", "tile"), ("shared", "shared"), ("broadcast", "aligned"), ("gone", "aligned")]
)
def test_variant_tuned_is_chosen_if_supported(tuned, expected):
    """A file of choices may come from another version, or from the same device with other features."""
    assert chosen(Caps(subgroup=0), tuned)[0] == expected


STEPS = Variant("steps", ANYWHERE, 5, "steps")
LARGE_STEPS = Variant("large steps", ANYWHERE, 6, "steps")
LANES = Variant("lanes", ANYWHERE, 7, "lanes")


@pytest.mark.parametrize(
    ("tuned", "expected"),
    [("", "steps"), ("large steps", "large steps"), ("lanes", "steps"), ("tile", "steps")],
)
def test_rows_of_sequences_are_added_up_in_one_order_whatever_was_measured(tuned, expected):
    cx = context(Caps(), {"work 8": tuned}, sequences=True)
    assert cx.variant("work", (8,), cpu=(LANES,), gpu=(TILE, STEPS, LARGE_STEPS)).name == expected
    assert cx.tuning_keys[0].names == ("steps", "large steps")  # nothing else is measured for them
    cx = context(Caps(), {"work 8": tuned})
    assert cx.variant("work", (8,), cpu=(LANES,), gpu=(TILE, STEPS, LARGE_STEPS)).name == (tuned or "tile")


def test_sequences_choose_among_all_if_no_variant_declares_an_order():
    cx = context(Caps(), {"work ": "shared"}, sequences=True)
    assert cx.variant("work", (), cpu=(SHARED,), gpu=(TILE, ALIGNED), work=8).name == "shared"


def test_variant_config_is_part_of_dispatch():
    cx = context(Caps(kind="cpu"), {"work": "shared"})
    assert cx.variant("work", (), cpu=(TILE,), gpu=(SHARED,)).config == 1
    assert context(Caps(), {"work ": "tile"}).variant("work", (), cpu=(TILE,), gpu=(SHARED,)).config == 1


@pytest.mark.parametrize(
    ("caps", "expected"),
    [
        (Caps(features=frozenset({"shader-f16"})), "halves"),
        (Caps(features=frozenset({"shader-f16"}), exact=True), "shared"),
        (Caps(), "shared"),
    ],
)
def test_half_products_need_f16_and_no_exact_results(caps, expected):
    halves: Variant[int] = Variant("halves", Requirements(half_products=True), 1, "half steps")
    cx = context(caps, {"work ": "halves"})
    assert cx.variant("work", (), cpu=(), gpu=(halves, SHARED)).name == expected


@pytest.mark.parametrize(("caps", "expected"), [(Caps(vendor=AMD, subgroup=32), True), (Caps(vendor=AMD), False)])
def test_pairs_of_f16_are_multiplied_by_newer_gpus_of_amd(caps, expected):
    assert multiplies_pairs(caps) is expected
    assert not multiplies_pairs(Caps(vendor=AMD, subgroup=64))
    assert not multiplies_pairs(Caps(vendor=INTEL, subgroup=32))


@pytest.mark.parametrize(
    ("vendor", "subgroup", "first"),
    [
        (0, 32, "lanes"),
        (AMD, 32, "lanes-halves"),
        (APPLE, 32, "lanes-halves"),
        (AMD, 64, "lanes-bytes"),
        (INTEL, 8, "lanes-bytes"),
        (ARM, 0, "lanes-bytes"),
    ],
)
def test_lanes_variants_of_a_vendor_declare_their_order(vendor, subgroup, first):
    variants = _lanes_variants(Caps(vendor=vendor, subgroup=subgroup))
    assert variants[0].name == first
    assert {variant.name: variant.order for variant in variants} == {
        "lanes": "lanes",
        "lanes-bytes": "lanes",
        "lanes-halves": "lanes of halves",
    }


@pytest.mark.parametrize(
    ("info", "vendor"),
    [
        ({"backend_type": "Metal", "device": "Apple M4 Pro", "vendor_id": 0}, APPLE),
        ({"backend_type": "Metal", "device": "AMD Radeon Pro 5500M", "vendor_id": 0}, 0),
        ({"backend_type": "Vulkan", "device": "AMD Radeon RX 7900", "vendor_id": AMD}, AMD),
        ({"backend_type": "OpenGL", "device": "Mali"}, 0),
    ],
)
def test_vendor_of_an_adapter_is_known_by_its_name_through_metal(info, vendor):
    assert vendor_of(info) == vendor
