"""Error classes and their codes."""

from __future__ import annotations

import json
import pickle

import pytest

import webpte.llm
import webpte.serve.errors  # defines classes of its own
from tests.support.harness.errors import raises
from webpte.cli import main
from webpte.errors import Error, ErrorFields, FormatError, HubError, InputError, Problem, common_code
from webpte.runtime.checks import check_method_name


def classes(kind: type[Error] = Error) -> list[type[Error]]:
    return [kind, *(each for sub in kind.__subclasses__() for each in classes(sub))]


def test_error_classes_have_distinct_codes():
    ours = [kind for kind in classes() if kind.__module__.startswith("webpte.")]
    codes = {kind.code: kind.__name__ for kind in ours}
    assert len(codes) == len(ours) and webpte.llm.ContextFullError in ours
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)


def test_error_reason_is_appended_and_pickled():
    error = FormatError("header.size: expected 30 bytes, got 7.", code="truncated")
    assert (error.code, error.reason) == ("format.truncated", "truncated")
    assert (FormatError.code, FormatError("").reason) == ("format", "")
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.reason, str(again)) == (error.code, error.reason, str(error))
    hub = pickle.loads(pickle.dumps(HubError("a/b is not there", "repository")))
    assert (hub.code, hub.reason) == ("hub.repository", "repository")


def test_fields_are_rendered_in_one_order_and_survive_pickling():
    fields = ErrorFields(
        code="empty_prompt", argument="prompt", expected="at least one token", got="none", hint="Give text."
    )
    error = pickle.loads(pickle.dumps(InputError(**fields)))
    assert str(error) == "prompt: expected at least one token, got none. Give text."
    assert error.to_json() == {**fields, "code": "input.empty_prompt", "message": str(error)}
    assert str(InputError("the file is empty.", argument="a.npy", hint="Write it again.")) == (
        "a.npy: the file is empty. Write it again."
    )
    assert InputError("plain").to_json() == {"code": "input", "message": "plain"}


@pytest.mark.parametrize(
    ("values", "code"), [((31,), "truncated"), ((30,), ""), ((30,), "cut")], ids=["value", "no code", "other code"]
)
def test_raises_refuses_another_error(values, code):
    with pytest.raises(AssertionError), raises(FormatError, *values, code=code):
        raise FormatError("expected 30 bytes", code="truncated")


def test_common_code_of_equal_problems_is_their_code():
    first, second = (Problem("graph", "value 0", "is wrong", code=code) for code in ("wrong_kind", "over_budget"))
    assert common_code([first, first]) == "wrong_kind" and common_code([first, second]) == "several"


def test_command_failing_with_json_prints_error_object(capsys, tmp_path):
    missing = tmp_path / "missing.pte"
    assert main(["inspect", str(missing), "--json"]) == 1
    printed = capsys.readouterr()
    error = json.loads(printed.out)["error"]
    assert error["code"].partition(".")[0] in {"input", "format"} and str(missing) in error["message"]
    assert error["message"] in printed.err.replace("\n", " ")
    assert main(["inspect", str(missing)]) == 1
    assert capsys.readouterr().out == ""


def test_unknown_method_is_named_with_a_similar_one():
    with raises(webpte.InputError, "got 'foward' (did you mean 'forward'?)", code="unknown_method") as raised:
        check_method_name("foward", ("forward", "encode"))
    assert (raised.value.argument, raised.value.expected) == ("name", "a method of the program (forward, encode)")
