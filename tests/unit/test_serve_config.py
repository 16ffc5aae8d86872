"""The configuration of a server: flags, environment and file, in that order, and invalid values."""

from __future__ import annotations

import contextlib
import hmac

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.work import executed_lines
from webpte.cli import main
from webpte.errors import InputError
from webpte.serve.config import ENV_PREFIX, FIELDS, HIDDEN, Config, load_config
from webpte.serve.errors import ApiError
from webpte.serve.middleware import ApiKeys


def test_flags_come_before_the_environment_before_the_file(tmp_path):
    file = tmp_path / "server.toml"
    file.write_text('port = 1\nhost = "file"\nslots = 2\nmodels = ["a.pte"]\n')
    result = load_config({"port": 3}, {f"{ENV_PREFIX}PORT": "2", f"{ENV_PREFIX}HOST": "environment"}, str(file))
    assert (result.config.port, result.config.host, result.config.slots) == (3, "environment", 2)
    assert result.config.models == ("a.pte",) and result.config.max_queue == Config().max_queue
    assert result.sources == {
        "port": "--port", "host": f"{ENV_PREFIX}HOST", "slots": str(file), "models": str(file),
    }  # fmt: skip


def test_config_toml_round_trips(tmp_path):
    fields = {
        "models": ("a.pte", "b=c.pte"),
        "port": 7,
        "cors_origins": ("https://a", "https://b"),
        "log_format": "text",
    }
    result = load_config(fields, {})
    file = tmp_path / "server.toml"
    file.write_text(result.as_toml())
    assert load_config({}, {}, str(file)).config == result.config


def test_keys_are_not_shown():
    shown = load_config({}, {f"{ENV_PREFIX}API_KEYS": "key-one, key-two"}).as_toml()
    assert "key-" not in shown and shown.count(HIDDEN) == 2 and f"{ENV_PREFIX}API_KEYS" in shown


@pytest.mark.parametrize(
    ("environment", "code", "expected"),
    [
        ({"PORT": "x"}, "wrong_type", ["WEBPTE_SERVE_PORT", "'x'"]),
        ({"PORT": "70000"}, "out_of_range", ["WEBPTE_SERVE_PORT", "65535", "70000"]),
        ({"SLOTS": "0"}, "out_of_range", ["WEBPTE_SERVE_SLOTS", "1, got '0'"]),
        ({"QUEUE_TIMEOUT": "nan"}, "wrong_type", ["WEBPTE_SERVE_QUEUE_TIMEOUT", "nan"]),
        ({"QUEUE_TIMEOUT": "0"}, "out_of_range", ["WEBPTE_SERVE_QUEUE_TIMEOUT", "'0'"]),
        ({"ALLOW_UNAUTHENTICATED": "perhaps"}, "wrong_type", ["WEBPTE_SERVE_ALLOW_UNAUTHENTICATED", "'perhaps'"]),
        ({"KV_CACHE": "f8"}, "unknown_choice", ["WEBPTE_SERVE_KV_CACHE", "'f32', 'f16' or 'int8'", "'f8'"]),
        ({"MAX_QUEU": "1"}, "unknown_option", ["WEBPTE_SERVE_MAX_QUEU", "max_queu ", "max_queue?"]),
    ],
)
def test_config_invalid_environment_is_refused_by_name(environment, code, expected):
    with raises(InputError, *expected, code=code):
        load_config({}, {ENV_PREFIX + name: value for name, value in environment.items()})


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("port = ", "invalid_toml", []),
        ("prot = 1", "unknown_option", ["prot ", "port?"]),
        ('port = "1"', "wrong_type", ["port", "'1'"]),
        ("port = true", "wrong_type", ["port", "True"]),
        ('models = "a.pte"', "wrong_type", ["models", "'a.pte'"]),
        ("models = [1]", "wrong_type", ["models", "got 1"]),
    ],
)
def test_config_invalid_file_is_refused_by_name(tmp_path, text, code, expected):
    file = tmp_path / "server.toml"
    file.write_text(text)
    with raises(InputError, file, *expected, code=code):
        load_config({}, {}, str(file))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_config_public_host_requires_key(host):
    with raises(InputError, f"host: {host}", "--api-key-file", code="missing_api_key"):
        Config(host=host).check_exposure()
    Config(host=host, api_keys=("k",)).check_exposure()
    Config(host=host, allow_unauthenticated=True).check_exposure()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_needs_no_key(host):
    Config(host=host).check_exposure()


def test_keys_of_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\n\n two \n")
    assert Config(api_keys=("zero",), api_key_file=str(file)).with_key_file().api_keys == ("zero", "one", "two")
    file.write_text("\n")
    with raises(InputError, f"api_key_file: {file}", code="empty_file"):
        Config(api_key_file=str(file)).with_key_file()
    with raises(InputError, "api_key_file", tmp_path / "nowhere", code="unreadable"):
        Config(api_key_file=str(tmp_path / "nowhere")).with_key_file()


def test_keys_are_all_compared(monkeypatch):
    """Whichever matches, and whether any does: the time shows nothing."""
    compared = []

    def compare(a, b):
        compared.append((a, b))
        return a == b

    monkeypatch.setattr("webpte.serve.middleware.hmac.compare_digest", compare)
    keys = ApiKeys(["first", "second", "third"])
    keys.check("Bearer first")
    keys.check("bearer  third ")
    with pytest.raises(ApiError) as caught:
        keys.check("Bearer fourth")
    assert caught.value.status == 401 and len(compared) == 9 and {len(a) for pair in compared for a in pair} == {32}


def test_key_check_does_the_same_work_wherever_a_guess_is_wrong(monkeypatch):
    """Lines of Python, and comparisons by `hmac.compare_digest`, whose time does not depend on the digests."""
    known = [letter * 32 for letter in "abc"]
    keys = ApiKeys(known)
    compared: list[int] = []
    original = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(len(a))
        return original(a, b)

    monkeypatch.setattr("webpte.serve.middleware.hmac.compare_digest", compare)

    def work(key: str) -> tuple[int, list[int]]:
        compared.clear()
        with contextlib.suppress(ApiError):
            keys.check(f"Bearer {key}")  # whatever is imported at first use
        compared.clear()

        def check() -> None:
            with contextlib.suppress(ApiError):
                keys.check(f"Bearer {key}")

        return executed_lines(check), list(compared)

    wrong = [key[:at] + "x" + key[at + 1 :] for key in known for at in (0, 15, 31)] + ["x" * 32, "a", "c" * 64]
    assert len({repr(work(key)) for key in wrong}) == 1
    assert len({repr(work(key)) for key in known}) == 1
    assert work(wrong[0])[1] == work(known[0])[1] == [32] * len(known)


def test_serve_command_shows_config(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv(f"{ENV_PREFIX}SLOTS", "3")
    file = tmp_path / "server.toml"
    file.write_text("max_queue = 5\n")
    assert main(["serve", "a.pte", "--port", "9", "--config", str(file), "--show-config"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert 'models = ["a.pte"]  # command line' in shown and "port = 9  # --port" in shown
    assert f"slots = 3  # {ENV_PREFIX}SLOTS" in shown and f"max_queue = 5  # {file}" in shown
    assert [line.split(" = ")[0] for line in shown] == list(FIELDS)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "FILE: expected at least one"),
        (("nowhere.pte",), "nowhere.pte does not exist"),
        (("name=nowhere.pte",), "nowhere.pte does not exist"),
        (("a.pte", "--config", "nowhere.toml"), "--config: nowhere.toml does not exist"),
        (("a.pte", "--host", "0.0.0.0"), "no API key is set"),
    ],
)
def test_serve_command_refuses_before_loading(arguments, text, capsys):
    assert main(["serve", *arguments]) == 1
    assert text in capsys.readouterr().err


def test_serve_command_duplicate_model_name_is_refused(tmp_path, capsys):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.pte").touch()
    assert main(["serve", str(tmp_path / "a" / "m.pte"), str(tmp_path / "b" / "m.pte")]) == 1
    assert "two models are named m. Rename one of them: NAME=PATH." in capsys.readouterr().err
