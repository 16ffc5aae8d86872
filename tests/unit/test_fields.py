"""Fields of files that others wrote: each is read, has no effect, or is named."""

from __future__ import annotations

from typing import Any

from webpte.fields import FieldRule, ReadFields

VALUES: dict[str, Any] = {
    "read": 3,
    "unset": None,
    "empty": [],
    "origin": "x",
    "neutral": 1,
    "other": 2,
    "unknown": False,
}
RULES = {"neutral": FieldRule((1,), "a scale"), "other": FieldRule((1,), "a scale")}


def test_unread_fields_are_those_that_change_results():
    fields = ReadFields("a.json", VALUES)
    assert fields.get("read", 5) == 3 and fields.get("unset", 5) == 5
    assert fields.unread({"origin"}.__contains__, RULES) == {
        "other": "other = 2: a scale",
        "unknown": "unknown = false: an unknown field",
    }


def test_warn_unread_names_the_file_and_every_unread_field(caplog):
    fields = ReadFields("a.json", VALUES)
    fields.get("read")
    fields.warn_unread({"origin"}.__contains__, RULES)
    (record,) = caplog.records
    assert record.getMessage() == (
        "a.json has fields that are not applied:\n  other = 2: a scale\n  unknown = false: an unknown field"
    )
    fields.warn_unread(VALUES.__contains__, RULES)
    assert len(caplog.records) == 1
