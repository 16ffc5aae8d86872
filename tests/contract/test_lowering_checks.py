"""What `webpte.export.lower` says about a module that webpte cannot run: before it writes, or right after."""

from __future__ import annotations

import warnings

import pytest

from tests.support.harness.errors import raises
from webpte.errors import UnsupportedError

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")


def module(function):
    return type("Module", (torch.nn.Module,), {"forward": lambda self, x: function(x)})()


def lower(function, path):
    from webpte.export import lower

    return lower(module(function), (torch.ones(4, 16),), path=path)


def test_lower_complex_numbers_names_op_and_writes_nothing(tmp_path):
    with raises(UnsupportedError, "fft_rfft", "complex64", code="complex"):
        lower(lambda x: torch.fft.rfft(x).abs().sum(-1), tmp_path / "p.pte")
    assert not list(tmp_path.iterdir())


def test_lower_shape_from_data_names_op(tmp_path):
    with raises(UnsupportedError, "aten.nonzero.default", code="not_lowered") as caught:
        lower(lambda x: torch.nonzero(x > 0).sum(), tmp_path / "p.pte")
    assert caught.value.items == ("aten.nonzero.default",) and not list(tmp_path.iterdir())


def test_lower_warns_of_ops_that_only_torch_runs(tmp_path):
    from webpte.export import ExportWarning

    with pytest.warns(ExportWarning, match=r"(?s)p\.pte.*aten::cumprod\.out: only torch") as caught:
        lower(lambda x: torch.cumprod(x, 1) + 1, tmp_path / "p.pte")
    assert caught[0].filename == __file__ and (tmp_path / "p.pte").exists()


def test_lower_warns_of_ops_without_kernel(tmp_path):
    from webpte.export import ExportWarning

    with pytest.warns(ExportWarning, match=r"aten::_linalg_svd.* has no CPU kernel"):
        lower(torch.linalg.svdvals, tmp_path / "p.pte")


def test_lower_is_silent_about_a_program_that_runs(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lower(torch.relu, tmp_path / "p.pte") == []
