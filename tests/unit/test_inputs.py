"""Inputs as a person types them: files, images, shapes, numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from webpte.debug.inputs import check_specs, make_inputs
from webpte.runtime import ArgumentInfo

TOKENS = ArgumentInfo("in0", "tensor", "i64", (1, 16), (False, True))
POSITION = ArgumentInfo("in0", "tensor", "i64", (1,), (False,))
PICTURES = ArgumentInfo("in0", "tensor", "f32", (8, 3, 4, 6), (True, False, False, False))
FLAG = ArgumentInfo("in3", "bool")


def values(arguments, *specs, seed=0):
    return [inputs.value for inputs in make_inputs(arguments, specs, seed)]


def test_inputs_default_is_random_at_bound_and_repeatable():
    (tokens, position, pictures, flag), again = (values([TOKENS, POSITION, PICTURES, FLAG]) for _ in range(2))
    assert tokens.shape == (1, 16) and tokens.dtype == np.int64 and set(tokens.flat) == {0, 1}
    assert position.tolist() == [0] and flag is False
    assert pictures.shape == (8, 3, 4, 6) and pictures.dtype == np.float32 and 0.8 < pictures.std() < 1.2
    assert np.array_equal(pictures, again[2])
    assert not np.array_equal(pictures, values([TOKENS, POSITION, PICTURES, FLAG], seed=1)[2])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("1x4:zeros", np.zeros((1, 4))),
        ("1x4:ones", np.ones((1, 4))),
        ("1x4:arange", np.arange(4).reshape(1, 4)),
        ("1x4:7", np.full((1, 4), 7)),
        ("zeros", np.zeros((1, 16))),
        ("3", np.full((1, 16), 3)),
        ("0=1x2:-5", np.full((1, 2), -5)),
        ("input0=1x2:ones", np.ones((1, 2))),
    ],
)
def test_shapes_and_fills(spec, expected):
    (tokens,) = values([TOKENS], spec)
    assert tokens.dtype == np.int64 and np.array_equal(tokens, expected)


def test_ranges_hold_both_ends():
    (tokens,) = values([TOKENS], "1x1000:3..5")
    assert set(tokens.flat) == {3, 4, 5}
    (floats,) = values([PICTURES], "-2..2")
    assert -2 <= floats.min() < -1 and 1 < floats.max() <= 2


def test_inputs_by_order_and_by_position():
    tokens, position = values([TOKENS, POSITION], "1=1:9", "1x2:4")
    assert tokens.tolist() == [[4, 4]] and position.tolist() == [9]


def test_arrays_from_files(tmp_path):
    np.save(tmp_path / "x.npy", np.linspace(0, 1, 6).reshape(2, 3))
    argument = ArgumentInfo("in0", "tensor", "f32", (2, 3), (False, False))
    (inputs,) = make_inputs([argument], [str(tmp_path / "x.npy")])
    assert inputs.value.dtype == np.float32 and inputs.source.endswith("x.npy, converted from float64")
    np.savez(tmp_path / "all.npz", in1=np.array([5]), in0=np.array([[1, 2]]), out0=np.zeros(3))
    tokens, position = values([TOKENS, POSITION], str(tmp_path / "all.npz"))
    assert tokens.tolist() == [[1, 2]] and position.tolist() == [5]
    tokens, position = values([TOKENS, POSITION], f"1={tmp_path}/all.npz:in1")
    assert position.tolist() == [5] and tokens.shape == (1, 16)
    np.savez(tmp_path / "named.npz", ids=np.array([[1, 2]]), at=np.array([5]))
    assert [v.tolist() for v in values([TOKENS, POSITION], str(tmp_path / "named.npz"))] == [[[1, 2]], [5]]


def test_inputs_by_the_names_that_the_file_has(tmp_path):
    arguments = [replace(TOKENS, name="tokens"), replace(POSITION, name="at")]
    tokens, position = values(arguments, "at=5", "tokens=1x3:ones")
    assert tokens.tolist() == [[1, 1, 1]] and position.tolist() == [5]
    np.savez(tmp_path / "named.npz", at=np.array([7]), tokens=np.array([[1, 2]]))
    assert [v.tolist() for v in values(arguments, str(tmp_path / "named.npz"))] == [[[1, 2]], [7]]
    check_specs(["at=5", "0=1x3:ones", str(tmp_path / "named.npz"), f"tokens={tmp_path}/named.npz:tokens"])
    with raises(webpte.InputError, "--input at=x.npy", code="unreadable"):
        check_specs(["at=x.npy"])


class TestImages:
    @pytest.fixture
    def image(self, tmp_path):
        from PIL import Image

        pixels = np.zeros((8, 12, 3), np.uint8)
        pixels[:, :6, 0] = 255  # the left half is red
        Image.fromarray(pixels).save(tmp_path / "half=red.png")
        return tmp_path / "half=red.png"

    def test_resized_to_the_bound_and_scaled(self, image):
        (picture,) = values([PICTURES], str(image))
        assert picture.shape == (1, 3, 4, 6) and picture.dtype == np.float32
        assert picture[0, 0, 0].tolist() == pytest.approx([1, 1, 1, 0, 0, 0], abs=0.3)
        assert picture[0, 0, :, :2].min() == 1 and picture[0, 1:].max() == 0 and picture[0, 0, :, 4:].max() == 0
        (picture,) = values([PICTURES], f"{image}:-1..1")
        assert (picture.min(), picture.max()) == (-1, 1)
        (picture,) = values([PICTURES], f"{image}:imagenet")
        assert picture[0, :, 0, 0] == pytest.approx([(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225], rel=1e-5)

    @pytest.mark.parametrize(
        ("dtype", "bound", "shape", "largest"),
        [("u8", (3, 4, 6), (3, 4, 6), 255), ("f32", (4, 6, 3), (4, 6, 3), 1), ("f32", (2, 1, 4, 6), (2, 1, 4, 6), 0.3)],
    )
    def test_image_input_of_any_layout_has_the_program_shape(self, image, dtype, bound, shape, largest):
        argument = ArgumentInfo("in0", "tensor", dtype, bound, (False,) * len(bound))
        (picture,) = values([argument], str(image))
        assert picture.shape == shape and picture.max() == pytest.approx(largest, rel=0.01)

    def test_inputs_non_image_for_image_is_refused(self, image):
        with raises(webpte.InputError, "input 0", "i64[1, <=16]", code="not_an_image_input"):
            values([TOKENS], str(image))
        with raises(webpte.InputError, "'bright'", code="pixel_range"):
            values([PICTURES], f"{image}:bright")
        with raises(webpte.InputError, "nothing.png", code="unreadable"):
            values([PICTURES], "nothing.png")

    def test_read_image_damaged_file_raises_input_error(self, image):
        image.write_bytes(image.read_bytes()[:45])
        with raises(webpte.InputError, "input 0", "PNG", image.name, code="unreadable"):
            values([PICTURES], str(image))

    def test_read_image_with_orientation_is_rotated(self, image):
        from PIL import Image

        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned by 90 degrees: the left half is then the upper one
        Image.open(image).save(image, exif=exif)
        (picture,) = values([PICTURES], str(image))
        assert picture[0, 0, 0].min() == 1 and picture[0, 0, 3].max() == 0


@pytest.mark.parametrize(
    ("specs", "code", "expected"),
    [
        (["tokens=x.npy"], "unknown_input", ["'tokens'", "in0"]),
        (["2=3"], "unknown_input", ["input 2;", "2 inputs"]),
        (["1x2:ones", "1", "1"], "unknown_input", ["input 2;", "2 inputs (0 to 1)"]),
        (["nothing.npy"], "unreadable", ["nothing.npy"]),
        (["1xx:ones"], "invalid_value", ["input 0:", "'1xx:ones'", "1x16:random"]),
        (["1x4:many"], "invalid_value", ["input 0:", "'1x4:many'", "1x16:random"]),
    ],
)
def test_inputs_invalid_text_is_refused(specs, code, expected):
    with raises(webpte.InputError, *expected, code=code):
        values([TOKENS, POSITION], *specs)


def test_inputs_archive_must_match(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(1), b=np.zeros(1), c=np.zeros(1))
    with raises(webpte.InputError, "x.npz", "a, b, c", "2 inputs", code="wrong_count"):
        values([TOKENS, POSITION], str(tmp_path / "x.npz"))
    with raises(webpte.InputError, "a, b, c", "x.npz:a", code="ambiguous_file"):
        values([TOKENS, POSITION], f"0={tmp_path}/x.npz")


class TestMaxDim:
    """Default inputs at fewer elements than the bound, for a first run that takes no minutes."""

    TOKENS = ArgumentInfo("tokens", "tensor", "i64", (1, 512), (False, True))
    MASK = ArgumentInfo("mask", "tensor", "f32", (8, 512), (True, True))

    def test_dynamic_dims_are_reduced_and_fixed_ones_are_not(self):
        tokens, mask = make_inputs([self.TOKENS, self.MASK], max_dim=16)
        assert tokens.value.shape == (1, 16) and mask.value.shape == (8, 16)
        assert tokens.default and mask.default

    def test_dims_follow_an_input_of_the_same_bound(self):
        tokens, mask = make_inputs([self.TOKENS, self.MASK], ["1x40:zeros"], max_dim=16)
        assert tokens.value.shape == (1, 40) and mask.value.shape == (8, 40)
        assert mask.default and not tokens.default

    def test_inputs_without_sequence_length_have_bound(self):
        assert [item.value.shape for item in make_inputs([self.TOKENS, self.MASK])] == [(1, 512), (8, 512)]


@pytest.mark.parametrize(("count", "text"), [(1, "1 input (0)"), (3, "3 inputs (0 to 2)")])
def test_inputs_position_out_of_range_states_number(count, text):
    infos = [ArgumentInfo(f"in{i}", "tensor", "f32", (2,), (False,)) for i in range(count)]
    with raises(webpte.InputError, text, code="unknown_input"):
        make_inputs(infos, [f"{count}=2:zeros"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], "has 0 inputs"), ([TOKENS], "has 1 input (0)"), ([TOKENS, POSITION], "has 2 inputs (0 to 1)")],
)
def test_make_inputs_for_unknown_position_counts_inputs(arguments, expected):
    with raises(webpte.InputError, "--input", "input 7;", expected, code="unknown_input"):
        make_inputs(arguments, ["7=1"])
