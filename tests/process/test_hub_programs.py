"""Programs by name and by address, from a hub on loopback: which variant, which files, faults, ranges, offline."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants, hf_hub_download

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.hub_server import CHUNK, HubServer, patched_hub, point_at
from tests.support.harness.writer import DelegateBlob, Method, ptd_bytes, pte_bytes, simple_pte, vk_blob
from tests.support.harness.xnn_writer import xnn_node, xnn_pte, xnn_value
from webpte.checkpoints.ranged import MAX_RANGED_BYTES
from webpte.checkpoints.remote_programs import fetch
from webpte.cli import main
from webpte.container import DelegateCall, DType, TensorValue, VkTensor
from webpte.debug.check import check_file
from webpte.progress import CancelToken, Progress, cancellable, ignore
from webpte.sources import is_remote, local_program, resolve_program

WEIGHTS = 1 << 20  # bytes of the constants of a program here
VALUES = [
    VkTensor(DType.FLOAT32, (512, 512)),
    VkTensor(DType.FLOAT32, (512, 512), constant_id=0),
    VkTensor(DType.FLOAT32, (512, 512)),
]
CALLS = [("aten.mul.Tensor", (0, 1, 2))]
TOKENIZER = b'{"model": {}}' * 500


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[HubServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "webpte"))
    with patched_hub(tmp_path / "cache", monkeypatch) as server:
        yield server


def constant(value: float) -> np.ndarray:
    return np.arange(512 * 512, dtype=np.float32).reshape(512, 512) + np.float32(value)


def vulkan(folder: Path, value: float = 2.0) -> bytes:
    simple_pte(folder / "made.pte", VALUES, CALLS, [0], [2], [constant(value)])
    return (folder / "made.pte").read_bytes()


def split(folder: Path) -> tuple[bytes, bytes]:
    """Return a program and its constants in a .ptd file."""
    entries = simple_pte(folder / "made.pte", VALUES, CALLS, [0], [2], [constant(3.0)], where="external")
    return (folder / "made.pte").read_bytes(), ptd_bytes(entries)


def xnnpack() -> bytes:
    values = [xnn_value((5, 7), argument=0), xnn_value((5, 7), argument=1, output=True)]
    return xnn_pte(values, [xnn_node("Abs", input=0, output=1)])


def other(*backends: str) -> bytes:
    """Return a program of delegates that nothing here can run, or of Vulkan's among them."""
    value = TensorValue(DType.FLOAT32, (4,), (0,))
    blob = vk_blob([VkTensor(DType.FLOAT32, (4,))] * 2, [("aten.relu.default", (0, 1))], [0], [1])
    calls = [DelegateCall(number, (0, 1)) for number in range(len(backends))]
    return pte_bytes([Method("forward", [value, value], [0], [1], calls, [DelegateBlob(blob, b) for b in backends])])


# ---------------------------------------------------------------- three repositories as they are published


def publish(hub: HubServer, folder: Path) -> None:
    """Add a model with a folder for each backend, a language model with variants, and one with a .ptd file."""
    hub.add(
        "maker/react-native-classifier",
        {
            "README.md": b"# Classifier",
            "config.json": b'{"model": "classifier"}',
            "coreml/classifier_coreml_fp16.pte": other("CoreMLBackend"),
            "vulkan/classifier_vulkan_fp16.pte": vulkan(folder),
            "vulkan/classifier_vulkan_fp16.task.json": b'{"task": "classification"}',
            "xnnpack/classifier_xnnpack_fp32.pte": xnnpack(),
            "xnnpack/classifier_xnnpack_int8.pte": xnnpack() + bytes(100),
        },
    )
    hub.add(
        "maker/react-native-llm",
        {
            "tokenizer.json": TOKENIZER,
            "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
            "llm-1B/original/llm_bf16.pte": xnnpack() + bytes(999),
            "llm-1B/spinquant/llm_spinquant.pte": xnnpack(),
            "llm-3B/spinquant/llm_spinquant.pte": xnnpack() + bytes(9),
        },
    )
    program, data = split(folder)
    hub.add(
        "community/Net-WebGPU",
        {"model.pte": program, "model.ptd": data, "tokenizer.json": TOKENIZER, "model.safetensors": bytes(5000)},
    )


def test_vulkan_variant_is_chosen_and_no_other_is_downloaded(hub, tmp_path):
    publish(hub, tmp_path)
    program = fetch("hf:maker/react-native-classifier", ignore)
    assert program is not None and program.name.endswith("/vulkan/classifier_vulkan_fp16.pte")
    assert "Vulkan" in program.choice and "4 variants" in program.choice
    assert program.path.read_bytes() == vulkan(tmp_path)
    folder = program.path.parents[1]
    present = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    task = "vulkan/classifier_vulkan_fp16.task.json"
    assert present == {"config.json", task, "vulkan/classifier_vulkan_fp16.pte"}
    assert not [line for line in hub.requests if "coreml" in line or "README" in line]
    hub.requests.clear()
    assert fetch("hf:maker/react-native-classifier", ignore) == program
    assert hub.requests == ["INFO maker/react-native-classifier"]  # headers and files are in the cache


def test_fetch_several_models_lists_them_and_downloads_none(hub, tmp_path):
    publish(hub, tmp_path)
    names = [f"hf:maker/react-native-llm/llm-{one}B/spinquant/llm_spinquant.pte" for one in (1, 3)]
    with raises(webpte.InputError, *names, code="ambiguous_file"):
        fetch("hf:maker/react-native-llm", ignore)
    assert hub.fetched() == []
    program = fetch(names[1], ignore)
    assert program is not None and program.name == names[1] and program.choice == ""
    assert (program.path.parents[2] / "tokenizer.json").read_bytes() == TOKENIZER
    assert set(hub.fetched()) == {"tokenizer.json", "tokenizer_config.json", names[1].split("/", 2)[2]}


def test_ptd_file_comes_along_and_is_used(hub, tmp_path):
    publish(hub, tmp_path)
    with webpte.load("hf:community/Net-WebGPU") as program:
        assert program.method_names == ("forward",) and program.path.endswith("model.pte")
        (number,) = program.graph("forward").inputs
        assert number == 0
    assert {"model.pte", "model.ptd"} <= set(hub.fetched()) and "model.safetensors" not in hub.fetched()


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ({"a.pte": ("XnnpackBackend",), "b/a.pte": ("VulkanBackend", "XnnpackBackend")}, None),  # two models
        ({"xnnpack/a.pte": ("XnnpackBackend",), "vulkan/a.pte": ("VulkanBackend", "XnnpackBackend")}, "vulkan/a.pte"),
        ({"int8/a.pte": ("VulkanBackend", "XnnpackBackend"), "fp16/a.pte": ("VulkanBackend",)}, "fp16/a.pte"),
        ({"vulkan/a.pte": ("QnnBackend",), "fp32/a.pte": ("XnnpackBackend",)}, "fp32/a.pte"),  # the header counts
        ({"fp32/a.pte": (), "int8/a.pte": ("XnnpackBackend",)}, "int8/a.pte"),
    ],
)
def test_variants_are_ranked_by_the_backends_of_their_headers(hub, variants, expected):
    hub.add("maker/net", {name: other(*backends) for name, backends in variants.items()})
    if expected is None:
        with pytest.raises(webpte.InputError):
            fetch("hf:maker/net", ignore)
        return
    program = fetch("hf:maker/net", ignore)
    assert program is not None and program.name == f"hf:maker/net/{expected}"


def test_fetch_other_backends_only_names_them(hub):
    hub.add("maker/net", {"coreml/a.pte": other("CoreMLBackend"), "b/a.pte": other("QnnBackend")})
    expected = ["hf:maker/net/coreml/a.pte", "Core ML", "hf:maker/net/b/a.pte", "Qualcomm"]
    with raises(webpte.UnsupportedError, *expected, code="other_backend"):
        fetch("hf:maker/net", ignore)
    hub.add("maker/net", {"coreml/a.pte": other("CoreMLBackend"), "model.safetensors": bytes(9), "config.json": b"{}"})
    assert fetch("hf:maker/net", ignore) is None  # its checkpoint is built


def test_repository_without_programs_is_refused_with_the_next_command(hub):
    hub.add("maker/checkpoint", {"config.json": b"{}", "model.safetensors": bytes(5000)})
    with raises(webpte.InputError, "webpte chat hf:maker/checkpoint", code="no_program"):
        webpte.load("hf:maker/checkpoint")
    with raises(webpte.HubError, "missing.pte", code="file"):
        webpte.load("hf:maker/checkpoint/missing.pte")
    assert hub.fetched() == []


def test_max_context_of_a_downloaded_program_is_refused(hub, tmp_path):
    publish(hub, tmp_path)
    with raises(webpte.InputError, code="fixed_context"):
        resolve_program("hf:community/Net-WebGPU", max_context=99)


# ---------------------------------------------------------------- ranges


def test_check_reads_ranges_of_the_header_and_no_weights(hub, tmp_path):
    publish(hub, tmp_path)
    for name in ("hf:maker/react-native-classifier", "hf:community/Net-WebGPU"):
        report = check_file(name)
        assert report["ok"] and report["bytes"] < 2 * WEIGHTS and report["memory"]["constant"] == WEIGHTS
    assert report["file"] == "hf:community/Net-WebGPU/model.pte"
    assert sum(hub.sent.values()) < WEIGHTS // 2
    assert not list(Path(constants.HF_HUB_CACHE).rglob("*.pte"))


def test_check_states_missing_ops_of_a_remote_program(hub, tmp_path):
    simple_pte(tmp_path / "a.pte", VALUES, [("aten.unknown.default", (0, 1, 2))], [0], [2], [constant(1)])
    hub.add("maker/net", {"a.pte": (tmp_path / "a.pte").read_bytes()})
    report = check_file("hf:maker/net")
    assert not report["ok"] and [problem["subject"] for problem in report["problems"]] == ["aten.unknown.default"]


def test_ranged_file_is_bounded_and_checked(hub, tmp_path, monkeypatch):
    publish(hub, tmp_path)
    monkeypatch.setattr("webpte.checkpoints.ranged.MAX_RANGED_BYTES", 100)
    assert MAX_RANGED_BYTES > 100
    with raises(webpte.HubError, "hf:community/Net-WebGPU/model.pte", code="ranges"):
        check_file("hf:community/Net-WebGPU/model.pte")


# ---------------------------------------------------------------- faults


def weights_of(event: Progress) -> bool:
    return event.stage == "fetch program" and event.done > 0


def test_interrupted_download_is_resumed(hub, tmp_path):
    publish(hub, tmp_path)
    cancel = CancelToken()

    def stop(event: Progress) -> None:
        if weights_of(event):
            cancel.cancel()

    name, file = "hf:maker/react-native-classifier", "vulkan/classifier_vulkan_fp16.pte"
    with pytest.raises(webpte.CancelledError):
        fetch(name, cancellable(stop, cancel))
    held = next(Path(constants.HF_HUB_CACHE).rglob("*.partial")).stat().st_size
    hub.requests.clear()
    hub.cuts = {file: [CHUNK * 3]}  # and the connection breaks once
    events: list[Progress] = []
    program = fetch(name, events.append)
    assert program is not None and program.path.read_bytes() == vulkan(tmp_path)
    asked = [line.removeprefix(f"GET {file} bytes=") for line in hub.requests if file in line]
    assert asked == [f"{held}-", f"{held + CHUNK * 3}-"]
    assert events[-1].done == events[-1].total and not list(Path(constants.HF_HUB_CACHE).rglob("*.partial"))


def test_download_with_another_hash_is_refused_and_removed(hub, tmp_path):
    publish(hub, tmp_path)
    hub.wrong = {"model.ptd"}
    with raises(webpte.HubError, "model.ptd", code="hash"):
        fetch("hf:community/Net-WebGPU", ignore)
    hub.wrong = set()
    assert fetch("hf:community/Net-WebGPU", ignore) is not None


def test_revision_is_the_one_that_is_named(hub, tmp_path):
    old = hub.add("maker/net", {"a.pte": vulkan(tmp_path, 5.0)})
    hub.add("maker/net", {"a.pte": vulkan(tmp_path, 6.0)})
    hub.add("maker/net", {"a.pte": vulkan(tmp_path, 7.0)}, revision="v1")
    for name, value in (("", 6.0), (f"@{old}", 5.0), ("@v1", 7.0), ("/a.pte@v1", 7.0)):
        program = fetch(f"hf:maker/net{name}", ignore)
        assert program is not None and program.path.read_bytes() == vulkan(tmp_path, value)
        assert program.name == f"hf:maker/net/a.pte{name[name.find('@') :] if name else ''}"
    with raises(webpte.HubError, "'v9'", code="revision"):
        fetch("hf:maker/net@v9", ignore)


def test_warm_cache_answers_offline(hub, tmp_path, monkeypatch):
    publish(hub, tmp_path)
    name = "hf:maker/react-native-classifier"
    online = fetch(name, ignore)
    with monkeypatch.context() as offline:
        offline.setattr(constants, "HF_HUB_OFFLINE", True)
        assert fetch(name, ignore) == online and check_file(name)["ok"]
        with raises(webpte.HubError, code="offline"):
            fetch("hf:community/Net-WebGPU", ignore)
    point_at("http://127.0.0.1:9", monkeypatch)  # no one listens there
    assert fetch(name, ignore) == online
    with raises(webpte.HubError, code="unreachable"):
        fetch("hf:community/Net-WebGPU", ignore)


def test_cache_is_shared_with_the_library(hub, tmp_path):
    publish(hub, tmp_path)
    file = "vulkan/classifier_vulkan_fp16.pte"
    path = hf_hub_download("maker/react-native-classifier", file)
    hub.requests.clear()
    program = fetch("hf:maker/react-native-classifier", ignore)
    assert program is not None and str(program.path) == path and f"GET {file}" not in hub.requests


# ---------------------------------------------------------------- addresses


def test_address_is_downloaded_once_resumed_and_checked(hub, tmp_path):
    data = vulkan(tmp_path)
    hub.pages["files/net.pte"] = data
    hub.cuts = {"files/net.pte": [CHUNK * 2]}
    address = f"{hub.address}/files/net.pte"
    path = Path(local_program(address))
    assert path.name == "net.pte" and path.read_bytes() == data
    asked = [line for line in hub.requests if line.startswith("GET")]
    assert asked == ["GET files/net.pte", f"GET files/net.pte bytes={CHUNK * 2}-"]
    hub.requests.clear()
    assert local_program(f"{address}#sha256={hashlib.sha256(data).hexdigest()}") == str(path)
    assert hub.requests == ["HEAD files/net.pte"]
    hub.pages["files/net.pte"] = other("VulkanBackend")
    assert Path(local_program(address)).read_bytes() == other("VulkanBackend")
    with raises(webpte.HubError, code="hash"):
        local_program(f"{address}#sha256={'0' * 64}")
    path.unlink(missing_ok=True)
    with raises(webpte.HubError, "401", code="file"):
        local_program(f"{hub.address}/org/name/absent.pte")


def test_address_in_the_cache_answers_without_the_server(tmp_path, hub, monkeypatch):
    hub.pages["net.pte"] = vulkan(tmp_path)
    address = f"{hub.address}/net.pte"
    assert check_file(address)["ok"] and hub.sent["net.pte"] < WEIGHTS // 4
    path = local_program(address)
    del hub.pages["net.pte"]
    monkeypatch.setattr("webpte.checkpoints.web_programs.WebProgram._stamp", unreachable)
    assert local_program(address) == path


def unreachable(self):
    raise ConnectionError("refused")


def test_damaged_copy_of_an_address_is_removed(hub, tmp_path):
    hub.pages["net.pte"] = vulkan(tmp_path)
    path = Path(local_program(f"{hub.address}/net.pte"))
    path.write_bytes(vulkan(tmp_path, 9.0))
    with raises(webpte.HubError, code="hash"):
        local_program(f"{hub.address}/net.pte")
    assert Path(local_program(f"{hub.address}/net.pte")).read_bytes() == vulkan(tmp_path)


def test_address_of_a_file_on_the_hub_is_its_name(hub, tmp_path):
    publish(hub, tmp_path)
    program = fetch(f"{hub.address}/community/Net-WebGPU/resolve/main/model.pte?download=true", ignore)
    assert program is not None and program.name == "hf:community/Net-WebGPU/model.pte"
    assert (program.path.parent / "model.ptd").exists()


@pytest.mark.parametrize("address", ["https://host/model.onnx", "https://host/", "https://host/a.pte#sha256=1"])
def test_address_of_another_kind_is_refused(address):
    with raises(webpte.InputError, repr(address), code="invalid_address"):
        webpte.load(address)


def test_is_remote_of_names_and_addresses():
    remote = ["hf:org/name", "https://host/a.pte", "http://127.0.0.1:80/a.pte", "http://localhost/a.pte"]
    assert all(map(is_remote, remote))
    assert not any(map(is_remote, ["http://host/a.pte", "http://127.0.0.1.host/a.pte", "a.pte", Path("a.pte"), b"hf:"]))


# ---------------------------------------------------------------- what is cached


def models(capsys, *arguments: str) -> dict[str, dict[str, Any]]:
    """Return the models that `webpte models` lists or removes, by their sources."""
    assert main(["models", *arguments, "--json"]) == 0
    return {model["source"]: model for model in json.loads(capsys.readouterr().out)}


def test_models_lists_downloads_with_sizes_and_removes_them(hub, tmp_path, capsys):
    publish(hub, tmp_path)
    address = f"{hub.address}/net.pte"
    hub.pages["net.pte"] = vulkan(tmp_path)
    name = "hf:community/Net-WebGPU"
    path = fetch(name, ignore)
    local_program(address)
    hf_hub_download("maker/react-native-llm", "tokenizer.json")  # not by webpte, which leaves it alone
    listed = models(capsys)
    assert set(listed) == {name, address}
    assert listed[name]["models"] == ["model.pte", "model.ptd"][::-1] and listed[address]["models"] == ["net.pte"]
    assert WEIGHTS < listed[name]["bytes"] < 1.1 * WEIGHTS < 1.2 * WEIGHTS > listed[address]["bytes"] > WEIGHTS
    assert set(models(capsys, "remove", name)) == {name}
    assert path is not None and not path.path.exists() and set(models(capsys)) == {address}
    assert main(["models"]) == 0 and "smollm2" in capsys.readouterr().out
    assert set(models(capsys, "remove", "--all")) == {address}
    assert models(capsys) == {} and list(Path(constants.HF_HUB_CACHE).rglob("tokenizer.json"))


# ---------------------------------------------------------------- a hub that is not trusted


def test_damaged_header_falls_back_to_the_words_of_the_name(hub):
    hub.add("maker/net", {"vulkan/a.pte": b"\0\0\0\0ET12" + bytes(5000), "xnnpack/a.pte": other("XnnpackBackend")})
    program = fetch("hf:maker/net", ignore)
    assert program is not None and program.name.endswith("vulkan/a.pte")
    with pytest.raises(webpte.FormatError):
        webpte.load("hf:maker/net")


def test_remembered_backends_are_not_trusted(hub, tmp_path):
    publish(hub, tmp_path)
    fetch("hf:maker/react-native-classifier", ignore)
    for record in Path(constants.HF_HUB_CACHE).rglob("*.backends.json"):
        assert isinstance(json.loads(record.read_text()), list)
        record.write_text("3")
    program = fetch("hf:maker/react-native-classifier", ignore)
    assert program is not None and program.name.endswith("vulkan_fp16.pte")
