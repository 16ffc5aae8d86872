"""The notebook widget over the real anywidget: the values that the page reads, and the messages it exchanges."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from webpte.notebook import FRONT, _widget_class

pytest.importorskip("anywidget", reason="anywidget is not installed: pip install 'webpte[notebook]'")


def test_widget_message_is_answered_by_the_shelf(monkeypatch):
    asked, sent = [], []

    def answer(content):
        asked.append(content)
        return {"number": 1, "size": 3}, [b"abc"]

    shelf = SimpleNamespace(kind="program", digest="0" * 64, page=["index.html"], answer=answer)
    widget = _widget_class()(shelf)
    state = widget.get_state()
    assert (state["kind"], state["digest"], state["page"]) == ("program", "0" * 64, ["index.html"])
    assert state["_esm"] == FRONT.read_text(encoding="utf-8")
    monkeypatch.setattr(widget, "send", lambda content, buffers: sent.append((content, buffers)))
    widget._handle_custom_msg({"path": "index.html"}, [])  # as a message of the page arrives
    assert asked == [{"path": "index.html"}] and sent == [({"number": 1, "size": 3}, [b"abc"])]


def test_widget_repr_names_the_class_and_its_content():
    class Files(SimpleNamespace):
        def __str__(self):
            return "program, 5 files"

    widget = _widget_class()(Files(kind="program", digest="0" * 64, page=[]))
    assert repr(widget).startswith("ProgramWidget(program, 5 files)")
    assert "<locals>" not in repr(type(widget))
