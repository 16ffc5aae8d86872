"""Checkpoints by name, from a hub on loopback that speaks the protocol of the hub's own library."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants, hf_hub_download, snapshot_download

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.hub_server import CHUNK, TOKEN, HubServer, patched_hub, point_at
from webpte.checkpoints.hub import fetch
from webpte.checkpoints.hub_files import HubFile
from webpte.checkpoints.hub_listing import HubName
from webpte.export import export_checkpoint
from webpte.progress import CancelToken, Progress, cancellable, ignore

NAME = "org/tiny"
CONFIG = json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}).encode()
FILES = {
    "config.json": CONFIG,
    "tokenizer.json": b'{"text": 1}' * 500,  # large enough to be kept apart
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": bytes(range(256)) * 4096,
    "pytorch_model.bin": b"pickle" * 1000,
    "modeling_tiny.py": b"print('code')",
    "README.md": b"# Tiny",
    "onnx/model.safetensors": bytes(5000),
}
READ = {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[HubServer]:
    with patched_hub(tmp_path / "cache", monkeypatch) as server:
        yield server


def accept(folder: Path) -> None:
    assert (folder / "config.json").read_bytes()


def get(source: str = f"hf:{NAME}", judge=accept, progress=ignore):
    return fetch(source, progress, judge)


def test_fake_hub_speaks_protocol_of_library(hub, tmp_path):
    """By the library alone, without a line of ours."""
    commit = hub.add(NAME, FILES)
    whole = Path(snapshot_download(NAME, cache_dir=tmp_path / "other"))
    assert {str(p.relative_to(whole)) for p in whole.rglob("*") if p.is_file()} == set(FILES)
    one = hf_hub_download(
        NAME, "model.safetensors", revision=commit, cache_dir=tmp_path / "third", endpoint=hub.address
    )
    assert Path(one).read_bytes() == FILES["model.safetensors"]


def test_fetch_downloads_only_files_that_export_reads(hub):
    commit = hub.add(NAME, FILES)
    result = get()
    assert set(hub.fetched()) == READ == set(result.files)
    assert (result.repository, result.revision, result.commit) == (NAME, "main", commit)
    assert {name: (result.path / name).read_bytes() for name in READ} == {name: FILES[name] for name in READ}


def test_fetch_library_reuses_downloaded_files(hub):
    commit = hub.add(NAME, FILES)
    result = get()
    before = len(hub.fetched())
    assert hf_hub_download(NAME, "model.safetensors", revision=commit) == str(result.path / "model.safetensors")
    hf_hub_download(NAME, "model.safetensors")
    assert len(hub.fetched()) == before


def test_fetch_cached_files_not_downloaded_again(hub):
    hub.add(NAME, FILES)
    get()
    hub.requests.clear()
    get()
    assert hub.requests == [f"INFO {NAME}"]


def test_config_json_is_judged_before_weights_are_fetched(hub, tmp_path):
    hub.add(NAME, FILES | {"config.json": b'{"architectures": ["BertForTokenClassification"]}'})
    with raises(webpte.UnsupportedError, "BertForTokenClassification", code="unknown_architecture"):
        export_checkpoint(f"hf:{NAME}", tmp_path / "x.pte")
    hub.add(NAME, FILES | {"config.json": b'{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}'})
    with raises(webpte.FormatError, "config.json", "hidden_size", code="missing_field"):
        export_checkpoint(f"hf:{NAME}", tmp_path / "x.pte")
    with raises(webpte.InputError, f"hf:{NAME}", "'language'", "labels", code="unknown_option"):
        export_checkpoint(f"hf:{NAME}", tmp_path / "x.pte", labels=3)
    with raises(webpte.InputError, tmp_path / "no" / "x.pte", code="missing_folder"):
        export_checkpoint(f"hf:{NAME}", tmp_path / "no" / "x.pte")
    assert "model.safetensors" not in hub.fetched()
    assert not list(tmp_path.glob("x.*"))


def test_shards_equal_index(hub):
    index = json.dumps(
        {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}}
    ).encode()
    shards = {"m-1.safetensors": b"1" * 5000, "m-2.safetensors": b"2" * 5000, "consolidated.safetensors": b"3" * 5000}
    small = {"config.json": CONFIG, "model.safetensors.index.json": index}
    hub.add(NAME, small | shards)
    assert set(get().files) == {*small, "m-1.safetensors", "m-2.safetensors"}
    hub.add(NAME, small | {"m-1.safetensors": b"1" * 5000})
    with raises(webpte.HubError, NAME, "m-2.safetensors;", "m-1.safetensors", code="file"):
        get()
    hub.add(NAME, {"config.json": CONFIG, "model.safetensors.index.json": b'{"weight_map": {"a": "../m.bin"}}'})
    with raises(webpte.UnsupportedError, NAME, "../m.bin", code="no_safetensors"):
        get()


def modules(*listed: tuple[str, str]) -> bytes:
    return json.dumps(
        [{"type": f"sentence_transformers.models.{kind}", "path": part} for kind, part in listed]
    ).encode()


POOLING = {"1_Pooling/config.json": json.dumps({"pooling_mode_mean_tokens": True}).encode()}


def test_modules_of_a_sentence_transformer_are_fetched_with_their_weights(hub, tmp_path):
    listed = modules(("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", "3_Normalize"))
    linear = {"2_Dense/config.json": b"{}", "2_Dense/model.safetensors": b"2" * 5000}
    read = {name: FILES[name] for name in READ} | {"modules.json": listed} | POOLING | linear
    pickles = {"2_Dense/pytorch_model.bin": b"pickle" * 1000}
    unnamed = {"4_Dense/config.json": b"{}", "4_Dense/model.safetensors": b"4" * 5000}
    hub.add(NAME, FILES | read | pickles | unnamed)
    result = get()
    assert set(hub.fetched()) == set(read) == set(result.files)
    assert (result.path / "2_Dense/model.safetensors").read_bytes() == b"2" * 5000
    hub.add(NAME, FILES | {"modules.json": listed, "2_Dense/config.json": b"{}"} | POOLING | pickles)
    with raises(
        webpte.UnsupportedError, "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin", code="no_safetensors"
    ):
        get()


def test_fetch_transformer_in_subfolder_is_read(hub):
    listed = modules(("Transformer", "0_Transformer"), ("Pooling", "1_Pooling"))
    read = {f"0_Transformer/{name}": FILES[name] for name in READ} | POOLING | {"modules.json": listed}
    hub.add(NAME, read | {"rust_model.safetensors": bytes(5000)})
    assert set(get(judge=lambda folder: None).files) == set(read)


def test_fetch_unknown_modules_refused_before_weights(hub, tmp_path):
    unknown = modules(("Transformer", ""), ("Pooling", "1_Pooling"), ("LSTM", "2_LSTM"))
    outside = modules(("Transformer", ""), ("Pooling", "../1_Pooling"))
    for listed, kind, code, expected in (
        (unknown, webpte.UnsupportedError, "unknown_module", "got Transformer, Pooling, LSTM"),
        (outside, webpte.FormatError, "file_name", "'../1_Pooling'"),
    ):
        hub.add(NAME, FILES | POOLING | {"modules.json": listed})
        with raises(kind, expected, code=code):
            export_checkpoint(f"hf:{NAME}", tmp_path / "x.pte")
    assert "model.safetensors" not in hub.fetched()


def test_fetch_gguf_file_by_name(hub):
    hub.add(NAME, {"q4.gguf": b"GGUF" + bytes(5000), "q8.gguf": b"GGUF" + bytes(9000)})
    result = get(f"hf:{NAME}/q4.gguf")
    assert hub.fetched() == ["q4.gguf"] and result.path.name == "q4.gguf" and result.path.read_bytes()[:4] == b"GGUF"
    with raises(webpte.InputError, f"\n  hf:{NAME}/q4.gguf\n  hf:{NAME}/q8.gguf", code="ambiguous_file"):
        get()
    with raises(webpte.HubError, "q5.gguf;", "q4.gguf, q8.gguf", code="file"):
        get(f"hf:{NAME}/q5.gguf")


# ---------------------------------------------------------------- revisions


def test_fetch_revision_is_pinned(hub, tmp_path):
    old = hub.add(NAME, FILES)
    new = hub.add(NAME, FILES | {"model.safetensors": b"new" * 5000})
    hub.add(NAME, FILES | {"model.safetensors": b"tag" * 5000}, revision="v1.0")
    assert get().commit == new and get(f"hf:{NAME}@v1.0").commit not in (old, new)
    pinned = get(f"hf:{NAME}@{old}")
    assert pinned.commit == old and (pinned.path / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    pinned.write(tmp_path / "x.pte")
    report = json.loads((tmp_path / "x.source.json").read_text())
    assert report["commit"] == report["revision"] == old and report["files"] == pinned.files


def test_fetch_missing_revision_or_repository_raises(hub):
    hub.add(NAME, FILES)
    for source, reason, expected in (
        (f"hf:{NAME}@v9", "revision", [NAME, "'v9'"]),
        ("hf:org/absent", "repository", [hub.address, "org/absent", "HF_TOKEN"]),
        ("hf:org/..", "repository", ["hf:org/.. ", "'org/..'"]),
    ):
        with raises(webpte.HubError, *expected, code=reason):
            get(source)


@pytest.mark.parametrize("text", ["hf:", "hf:a/b/c", "hf:a/b/c/d.bin", "hf:/b", "hf:a/b@", "hf:a b/c", "hf:a/x.gguf@"])
def test_names_that_are_none_are_refused(text):
    with raises(webpte.InputError, repr(text), "hf:org/name@revision", code="invalid_name"):
        HubName.parse(text)


# ---------------------------------------------------------------- faults


def test_fetch_cut_connection_resumes_in_same_call(hub):
    hub.add(NAME, FILES)
    hub.cuts = {"model.safetensors": [CHUNK * 3, 0, CHUNK * 5]}
    get()
    asked = [line.removeprefix("GET model.safetensors") for line in hub.requests if "GET model.safe" in line]
    assert asked == ["", f" bytes={CHUNK * 3}-", f" bytes={CHUNK * 3}-", f" bytes={CHUNK * 8}-"]


def test_fetch_cancelled_resumes_partial_download(hub):
    hub.add(NAME, FILES)
    cancel = CancelToken()
    seen: list[Progress] = []

    def stop(event: Progress) -> None:
        seen.append(event)
        if event.stage == "fetch weights" and event.done > 0:
            cancel.cancel()

    with raises(webpte.CancelledError, "'fetch weights'"):
        get(progress=cancellable(stop, cancel))
    held = next(Path(constants.HF_HUB_CACHE).rglob("*.partial")).stat().st_size
    assert 0 < held < 1 << 20
    hub.requests.clear()
    result = get(progress=seen.append)
    asked = [line for line in hub.requests if line.startswith("GET")]
    assert asked == [f"GET model.safetensors bytes={held}-"]
    assert (result.path / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert seen[-1] == Progress("fetch weights", 1 << 20, 1 << 20, "bytes")
    assert not list(Path(constants.HF_HUB_CACHE).rglob("*.partial"))


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_fetch_wrong_hash_is_refused(hub, file):
    hub.add(NAME, FILES)
    hub.wrong = {file}
    with raises(webpte.HubError, NAME, f" {file} ", code="hash"):
        get()
    assert not [p for p in Path(constants.HF_HUB_CACHE).rglob("*") if p.name == file or p.suffix == ".partial"]
    hub.wrong = set()
    assert (get().path / file).read_bytes() == FILES[file]


def test_fetch_modified_cached_file_is_refused(hub):
    hub.add(NAME, FILES)
    path = get().path / "model.safetensors"
    path.write_bytes(b"\1" + FILES["model.safetensors"][1:])
    fetched = len(hub.fetched())
    with raises(webpte.HubError, NAME, "model.safetensors", code="hash"):
        get()
    assert len(hub.fetched()) == fetched
    assert (get().path / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_fetch_gated_model_requires_token(hub, monkeypatch):
    hub.add(NAME, FILES)
    hub.repositories[NAME].gated = True
    with raises(webpte.HubError, f"{hub.address}/{NAME}", "HF_TOKEN", code="gated") as caught:
        get()
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
    with raises(webpte.HubError, f"{hub.address}/{NAME}", "HF_TOKEN", code="gated") as again:
        get()
    assert again.value.hint == caught.value.hint and str(again.value) != str(caught.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert set(get().files) == READ


def test_fetch_offline_uses_cache(hub, monkeypatch):
    commit = hub.add(NAME, FILES)
    get()
    point_at("http://127.0.0.1:9", monkeypatch)  # no one listens there
    assert get().commit == get(f"hf:{NAME}@{commit}").commit == commit
    with raises(webpte.HubError, "http://127.0.0.1:9 ", "org/other@main", "HTTPS_PROXY", code="unreachable"):
        get("hf:org/other")


def test_offline_the_cache_is_used_and_the_hub_is_not_asked(hub, monkeypatch):
    commit = hub.add(NAME, FILES)
    get()
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert get().commit == commit and hub.requests == []
    with raises(webpte.HubError, f"{NAME}@v2", "HF_HUB_OFFLINE", code="offline"):
        get(f"hf:{NAME}@v2")


def test_fetch_offline_missing_file_is_named(hub, monkeypatch):
    hub.add(NAME, FILES)

    def refuse(folder: Path) -> None:
        raise webpte.UnsupportedError("not now")

    with pytest.raises(webpte.UnsupportedError):
        get(judge=refuse)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with raises(webpte.HubError, "model.safetensors", NAME, "HF_HUB_OFFLINE", code="offline"):
        get()


def test_fetch_full_disk_reported_before_and_during(hub, monkeypatch):
    hub.add(NAME, FILES)
    usage = type("Usage", (), {"free": 1000})()
    with monkeypatch.context() as patched, raises(webpte.HubError, NAME, "1 kB", "HF_HOME", code="disk"):
        patched.setattr("webpte.checkpoints.hub_files.shutil.disk_usage", lambda path: usage)
        get()
    assert hub.fetched() == []

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("webpte.checkpoints.hub_files.resume_download", full)
    with raises(webpte.HubError, f"{NAME}@main", "HF_HOME", code="disk"):
        get()


def test_pickles_are_not_fetched(hub):
    hub.add(NAME, {"config.json": CONFIG, "pytorch_model.bin": b"pickle" * 1000})
    with raises(webpte.UnsupportedError, NAME, "pytorch_model.bin", code="no_safetensors"):
        get()
    hub.add(NAME, {"README.md": b"nothing"})
    with raises(webpte.FormatError, f"{NAME}@main", "config.json", ".gguf", code="no_model"):
        get()


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    "name", ["../escape.safetensors", "/escape.safetensors", "a/../../escape.safetensors", "a//b", "."]
)
def test_names_that_leave_the_cache_are_refused(hub, tmp_path, name):
    index = json.dumps({"weight_map": {"a": name}}).encode()
    hub.add(NAME, {"config.json": CONFIG, INDEX: index, name: b"evil" * 5000})
    with raises(webpte.HubError, repr(name), code="listing"):
        get()
    assert not [path for path in tmp_path.rglob("*") if "escape" in path.name or path.is_symlink()]


@pytest.mark.parametrize("name", ["C:evil.safetensors", "a\\..\\evil.safetensors", "evil\n.safetensors", "x" * 600])
def test_names_that_not_every_system_has_count_as_absent(hub, name):
    hub.add(NAME, FILES | {name: b"evil" * 5000})
    assert set(get().files) == READ


@pytest.mark.parametrize("digest", ["../" * 9 + "escape".ljust(37, "x"), "A" * 64, "0" * 63, "", "g" * 40])
def test_hashes_that_are_none_are_refused(digest):
    with raises(webpte.HubError, "config.json", code="listing"):
        HubFile("config.json", 5, digest)


def test_fetch_modified_cached_listing_is_ignored(hub, monkeypatch):
    hub.add(NAME, FILES)
    get()
    for path in (Path(constants.HF_HUB_CACHE) / "models--org--tiny" / ".webpte").glob("*.json"):
        path.write_text(path.read_text().replace('"model.safetensors"', '"../../model.safetensors"'))
    point_at("http://127.0.0.1:1", monkeypatch)
    with pytest.raises(webpte.HubError):
        get()
