"""The processes of a server: what they inherit, what others can read of them, and a system that has no more to give."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.process.test_serve_images import (
    ask,  # noqa: F401 - a fixture
    chat,
    encoded,
    encoder,
    model_files,  # noqa: F401 - a fixture
    png,
    requests,
)
from tests.support.harness.errors import raises
from webpte.errors import InputError
from webpte.serve.errors import ApiError
from webpte.serve.media_process import COMMAND, ONE_THREAD, ImageFile, decode_audio, download_images, prepare_images
from webpte.serve.processes import spawn

SECRETS = {
    "WEBPTE_SERVE_API_KEYS": "alpha",
    "WEBPTE_SERVE_SLOTS": "2",
    "HF_TOKEN": "hf_secret",
    "HUGGING_FACE_HUB_TOKEN": "hf_secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "OPENAI_API_KEY": "sk-secret",
    "DATABASE_URL": "postgres://user:secret@host",
}
SETTINGS = {"VK_ICD_FILENAMES": "/a.json", "MESA_VK_DEVICE_SELECT": "1:2", "WEBPTE_ADAPTER": "0", "HF_HOME": "/cache"}


async def output_of(*arguments: str, variables: dict[str, str] | None = None) -> bytes:
    child = await spawn((sys.executable, *arguments), variables)
    return (await child.communicate())[0]


def test_processes_inherit_settings_and_no_secrets(monkeypatch):
    for name, value in (SECRETS | SETTINGS).items():
        monkeypatch.setenv(name, value)
    text = asyncio.run(output_of("-c", "import json, os; print(json.dumps(dict(os.environ)))"))
    inherited = json.loads(text)
    assert not SECRETS.keys() & inherited.keys()
    assert {name: inherited.get(name) for name in (*SETTINGS, "PATH")}.items() >= SETTINGS.items()
    assert "PATH" in inherited


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the system has no /proc")
def test_commands_contain_nothing_of_a_client(tmp_path, monkeypatch):
    """Every user of the system can read the command of a process."""
    commands: list[tuple[str, ...]] = []

    async def recorded(command: Any, *arguments: Any, **options: Any) -> Any:
        commands.append(tuple(command))
        return await spawn(command, *arguments, **options)

    monkeypatch.setattr("webpte.serve.media_process.spawn", recorded)
    address = "http://127.0.0.1/a.png?signature=" + "x" * 200_000  # also more than a command may have
    image: ImageFile = {"argument": "a", "address": address, "path": str(tmp_path / "image")}
    with raises(InputError, code="private_address"):
        asyncio.run(download_images([image], 1000, 10))
    assert commands == [COMMAND]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has networks of processes")
def test_decoders_have_no_network(monkeypatch):
    if subprocess.run(["unshare", "-U", "-n", "true"], capture_output=True).returncode:
        pytest.skip("the system does not allow a network of a process")
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = (
            "import socket; from webpte.serve import media_process, processes; processes.leave_network();"
            f"print(socket.socket().connect_ex(('127.0.0.1', {server.getsockname()[1]})))"
        )
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "8")
        assert int(asyncio.run(output_of("-c", source, variables=ONE_THREAD))) == errno.ENETUNREACH


# -- a system without disk, memory or processes -----------------------------------------------------------------------


def wave(path: Path) -> Path:
    data = np.zeros(16_000, "<i2").tobytes()
    header = b"RIFF" + (36 + len(data)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    header += b"\1\0\1\0" + (16_000).to_bytes(4, "little") + (32_000).to_bytes(4, "little") + b"\2\0\x10\0"
    path.write_bytes(header + b"data" + len(data).to_bytes(4, "little") + data)
    return path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_full_disk_while_samples_are_written_is_503(tmp_path):
    with pytest.raises(ApiError) as caught:
        asyncio.run(decode_audio(wave(tmp_path / "a.wav"), Path("/dev/full"), 16_000, 10, 30))
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "5"})
    assert "/dev/full" not in str(caught.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_full_disk_while_pixels_are_written_is_503(tmp_path, model_files):  # noqa: F811
    (tmp_path / "image").write_text(encoded(png()))
    (tmp_path / "image.pixels").symlink_to("/dev/full")
    image: ImageFile = {"argument": "a", "address": None, "path": str(tmp_path / "image")}
    with pytest.raises(ApiError) as caught:
        asyncio.run(prepare_images([image], tmp_path, encoder(model_files), 1 << 20, 30))
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "5"})


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EAGAIN])
def test_request_for_which_the_system_lacks_something_is_503(ask, monkeypatch, number):  # noqa: F811
    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, "no more of it", "/private/path")

    body = requests(encoded())["/v1/chat/completions"]
    for place in ("webpte.serve.images.TemporaryDirectory", "webpte.serve.media_process.spawn"):
        with monkeypatch.context() as patched:
            patched.setattr(place, fail)
            response, backend = ask("/v1/chat/completions", body)
        assert response.status == 503 and not backend.streams, (place, response.body)
        assert response.headers["retry-after"] == "5" and b"/private" not in response.body
    assert tempfile.gettempdir() and ask("/v1/chat/completions", body)[0].status == 200


def test_request_other_system_error_is_500(ask, monkeypatch):  # noqa: F811
    def fail(*arguments: Any, **options: Any) -> Any:
        raise FileNotFoundError(errno.ENOENT, "a bug")

    monkeypatch.setattr("webpte.serve.images.TemporaryDirectory", fail)
    assert ask("/v1/chat/completions", chat("data:image/png;base64," + encoded()))[0].status == 500
