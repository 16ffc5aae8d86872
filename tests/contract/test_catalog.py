"""ExecuTorch's own op catalog: every suite that we can run must pass, and the others are named."""

from __future__ import annotations

import json

import pytest

from tests.studies.catalog.checks import Check, read_manifest, refusal, run_checks
from tests.studies.catalog.run import main
from tests.studies.catalog.source import catalog
from tests.studies.catalog.suites import PENDING, SUITES
from webpte.device import acquire

# Where there is no catalog yet, whichever test comes first makes one: ten minutes.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def suites() -> dict[str, list[Check]]:
    results: dict[str, list[Check]] = {}
    for check in read_manifest(catalog()):
        results.setdefault(check.suite, []).append(check)
    return results


@pytest.fixture(scope="module", autouse=True)
def device():
    gpu = acquire({})  # kept open, so that programs share its pipelines
    yield gpu
    gpu.release()


@pytest.mark.parametrize("suite", SUITES)
def test_catalog_suite_passes(suite, suites):
    bad = [r for r in run_checks(suites[suite]) if r.outcome != "passed"]
    assert not bad, "\n".join(f"{r.check.case} {r.outcome}: {r.reason}" for r in bad)


def test_catalog_suites_are_all_listed(suites):
    assert set(suites) == {*SUITES, *PENDING}
    assert len(SUITES) + len(PENDING) == len(suites)


def test_catalog_pending_suites_are_those_refused(suites):
    refused = {suite for suite, checks in suites.items() if any(refusal(check) for check in checks)}
    assert refused == set(PENDING)


def test_catalog_command_runs_suites(suites, capsys):
    assert main(["--ops", "abs,et_vk_sdpa"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split() == ["total", str(len(suites["abs"]) + len(suites["et_vk_sdpa"])), "-", "-"]
    assert main(["--ops", "abs", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["outcome"] for row in rows] == ["passed"] * len(suites["abs"])


def test_catalog_command_unknown_suite_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--ops", "abs,nonsense"])
    assert "nonsense" in capsys.readouterr().err
