"""The notebooks of the documentation run, and show what is stored in them."""

from __future__ import annotations

import pytest

from tests.support.harness import notebooks

pytestmark = pytest.mark.contract  # they run exported programs


@pytest.mark.slow  # `python -m tests.affected` runs those that changed
@pytest.mark.parametrize("name", notebooks.names())
def test_notebook_runs_with_stored_outputs(name, tmp_path):
    result = notebooks.executed(name, tmp_path)
    assert not notebooks.differences(name, result)
    assert sum(bool(notebooks.shown(cell)) for cell in result.cells) >= 4


def test_notebook_changed_output_is_detected(tmp_path, monkeypatch):
    import nbformat

    cell = nbformat.v4.new_code_cell("print('one 1')")
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="one 1\n")]
    book = nbformat.v4.new_notebook(cells=[cell])
    (tmp_path / "a.ipynb").write_text(nbformat.writes(book))
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    assert not notebooks.differences("a.ipynb", notebooks.executed("a.ipynb", tmp_path))
    cell.outputs[0].text = "two 1\n"
    (tmp_path / "a.ipynb").write_text(nbformat.writes(book))
    assert notebooks.differences("a.ipynb", notebooks.executed("a.ipynb", tmp_path))
