"""Workflows that check changes and publish releases, as far as their files show."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import webpte
from docs.make_space import write_space

ROOT = Path(__file__).parents[2]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def steps(workflow: str) -> list[dict]:
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]


def commands(workflow: str) -> str:
    return "\n".join(step.get("run", "") for step in steps(workflow))


def test_ci_is_the_script_that_runs_anywhere():
    assert set(WORKFLOWS) == {"ci", "nightly", "release"}
    assert "bash .ci/run" in commands("ci") and "bash .ci/versions" in commands("ci")
    assert "bash .ci/release dist" in commands("ci") and "bash .ci/release dist build" in commands("release")


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_jobs_have_timeouts_and_pinned_actions(name):
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}, "a job asks for what it needs beyond that"
    longest = 120 if name == "nightly" else 90
    assert all(job["timeout-minutes"] <= longest for job in workflow["jobs"].values())
    # A tag can be moved, a commit cannot. The comment names the version, which only the file's text has.
    lines = re.findall(r"uses: (.*)", (ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    assert len(lines) == len([step for step in steps(name) if "uses" in step]) > 0
    assert all(re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) for line in lines), lines
    for script in re.findall(r"\.ci/[\w.]+", commands(name)):
        assert (ROOT / script).exists(), script


def test_workflow_action_has_one_commit():
    commits: dict[str, set[str]] = {}
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action, commit in re.findall(r"uses: ([\w-]+/[\w-]+)[\w/-]*@(.*)", path.read_text()):
            commits.setdefault(action, set()).add(commit)
    assert all(len(result) == 1 for result in commits.values()), commits


CHECK = 'cd dist && echo "$SUMS" | base64 -d | sha256sum --check --strict --ignore-missing'
SUMS = "${{ needs.build.outputs.sums }}"


def test_jobs_that_may_publish_run_nothing_but_actions():
    """A tool that is fetched where a token can be had could publish anything."""
    for workflow in WORKFLOWS.values():
        for name, job in workflow["jobs"].items():
            if "id-token" in job.get("permissions", {}):
                commands = [step["run"] for step in job["steps"] if "run" in step]
                assert commands[0] == CHECK, name
                assert all(line.startswith("npm publish --ignore-scripts ") for line in commands[1:]), name


def test_release_builds_beside_nothing_without_hashes():
    """A package that is installed from a range, or a script of one, could change the files that are published."""
    jobs = WORKFLOWS["release"]["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert [line for line in commands["build"] if ".ci/" in line] == ["bash .ci/release dist build"]
    assert [line for line in commands["test"]] == ["bash .ci/release dist test"]
    assert "permissions" not in jobs["test"] and "outputs" not in jobs["test"]
    assert not any("upload-artifact" in step.get("uses", "") for step in jobs["test"]["steps"])
    script = (ROOT / ".ci" / "release").read_text()
    build, bill = re.findall(r"^(?:build|bill)\(\) \{\n(.*?)^\}", script, re.MULTILINE | re.DOTALL)
    assert "pip" not in build and "npm --prefix web ci --ignore-scripts" in build
    assert "--only-binary :all: --target" in bill and "bin/python" not in bill


def test_release_attests_what_two_builds_agree_on():
    jobs = WORKFLOWS["release"]["jobs"]
    assert set(jobs["attest"]["needs"]) == {"build", "rebuild", "bill", "test"}
    steps = jobs["rebuild"]["steps"]
    assert steps[1]["run"] == "bash .ci/release dist build"
    assert steps[2] == {"run": 'echo "$SUMS" | base64 -d | diff - dist/SHA256SUMS', "env": {"SUMS": SUMS}}
    for name in ("attest", "publish", "publish-npm"):
        assert "build" in jobs[name]["needs"]
        assert [step["env"] for step in jobs[name]["steps"] if step.get("run") == CHECK] == [{"SUMS": SUMS}], name


def test_hashes_of_another_file_stop_a_publication(tmp_path):
    (tmp_path / "dist").mkdir()
    for name in ("a.whl", "b.tgz"):
        (tmp_path / "dist" / name).write_text(name)
    sums = subprocess.run("sha256sum *", shell=True, cwd=tmp_path / "dist", capture_output=True, check=True).stdout
    environment = {"SUMS": base64.b64encode(sums).decode(), "PATH": "/usr/bin:/bin"}

    def status() -> int:
        done = subprocess.run(["bash", "-eo", "pipefail", "-c", CHECK], cwd=tmp_path, env=environment)
        return done.returncode

    assert status() == 0
    (tmp_path / "dist" / "b.tgz").unlink()  # a job downloads what it publishes
    assert status() == 0
    (tmp_path / "dist" / "a.whl").write_text("changed")
    assert status() != 0


@pytest.mark.parametrize("name", WORKFLOWS)
def test_checkout_keeps_no_credentials(name):
    checkouts = [step for step in steps(name) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_images_of_a_release_have_digests():
    """A tag can be moved."""
    jobs = WORKFLOWS["release"]["jobs"]
    digest = r"@sha256:[0-9a-f]{64}"
    assert re.fullmatch(f"node{digest}", jobs["publish-npm"]["container"])
    (build,) = [step for step in jobs["image"]["steps"] if "run" in step]
    assert re.fullmatch("sha256:[0-9a-f]{64}", build["env"]["BUILDKIT"]) and "moby/buildkit@$BUILDKIT" in build["run"]
    bases = re.findall(r"^(?:ARG BASE=|FROM )(\S+)", (ROOT / "docs" / "Dockerfile").read_text(), re.MULTILINE)
    assert all(base == "${BASE}" or re.search(f"{digest}$", base) for base in bases) and len(bases) == 3


def test_release_tools_are_pinned_with_their_hashes():
    """pip refuses the file otherwise, and only when a release is built."""
    script = (ROOT / ".ci" / "release").read_text()
    assert "--require-hashes --only-binary :all: -r .ci/release-tools.txt" in script
    text = (ROOT / ".ci" / "release-tools.txt").read_text()
    pinned = re.findall(r"^([\w.-]+)==[\w.]+ \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE)) > 0
    assert set((ROOT / ".ci" / "release-tools.in").read_text().split()) <= set(pinned)


@pytest.fixture
def recipes(tmp_path):
    """What other package managers build from, for a source archive of a version."""
    (tmp_path / "webpte-7.8.9.tar.gz").write_bytes(b"source")
    subprocess.run([sys.executable, ROOT / ".ci" / "packagers.py", tmp_path], check=True)
    return yaml.safe_load((tmp_path / "recipe.yaml").read_text()), (tmp_path / "webpte.rb").read_text()


def test_recipes_name_the_archive_and_what_it_needs(recipes):
    recipe, formula = recipes
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    source = recipe["source"]
    assert source["sha256"] == hashlib.sha256(b"source").hexdigest() and f'"{source["sha256"]}"' in formula
    assert source["url"] == f"{project['urls']['Source']}/releases/download/v7.8.9/webpte-7.8.9.tar.gz"
    assert f'"{source["url"]}"' in formula
    needed = {entry.split()[0].removesuffix("-py") for entry in recipe["requirements"]["run"]} - {"python"}
    assert needed == {re.split("[<>=]", entry)[0] for entry in project["dependencies"]}
    extras = re.search(r"buildpath\}\[(.*?)\]", formula)
    assert extras and set(extras[1].split(",")) <= set(project["optional-dependencies"])


def test_recipes_need_one_archive(tmp_path):
    failed = subprocess.run([sys.executable, ROOT / ".ci" / "packagers.py", tmp_path], capture_output=True, text=True)
    assert failed.returncode == 1 and "expected one source archive, got 0" in failed.stderr


def test_gate_limit_is_shorter_than_job_timeout():
    """The gate then prints the results so far."""
    limit = re.search(r"^limit=(\d+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert limit and int(limit[1]) < 60 * WORKFLOWS["ci"]["jobs"]["all"]["timeout-minutes"]


def test_releases_are_published_by_trust_and_not_by_a_password():
    jobs = WORKFLOWS["release"]["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish-npm"]["permissions"] == {"id-token": "write"}
    for name in ("publish", "publish-npm", "image"):
        assert "attest" in jobs[name]["needs"] and "environment" in jobs[name], name
    used = [step.get("uses", "").split("@")[0] for step in steps("release")]
    for action in ("pypa/gh-action-pypi-publish", "actions/attest-build-provenance", "actions/attest-sbom"):
        assert action in used
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "secrets." not in text and "password:" not in text


def test_release_tag_must_equal_version():
    """By a sed of version.py: it must find it."""
    (line,) = (step["run"] for step in steps("release") if "version.py" in step.get("run", ""))
    tag = {"GITHUB_REF_NAME": f"v{webpte.__version__}", "PATH": "/usr/bin:/bin"}
    assert subprocess.run(["bash", "-c", line], cwd=ROOT, env=tag).returncode == 0
    assert subprocess.run(["bash", "-c", line], cwd=ROOT, env=tag | {"GITHUB_REF_NAME": "v0.0.0"}).returncode == 1


def test_workflow_matrix_covers_supported_pythons():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    matrix = WORKFLOWS["ci"]["jobs"]["versions"]["strategy"]["matrix"]
    assert matrix["python"][0] == project["requires-python"].removeprefix(">=")
    assert {"python": matrix["python"][0], "packages": "oldest"} in matrix["include"]


def test_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == webpte.__version__
    newest = re.search(r"^## \[(\d[\w.]*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest.groups() == (webpte.__version__, citation["date-released"])


def test_project_metadata_is_true():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [kind.rpartition(" ")[2] for kind in project["classifiers"] if re.search(r"Python :: \d\.", kind)]
    assert named == WORKFLOWS["ci"]["jobs"]["versions"]["strategy"]["matrix"]["python"]
    assert project["license"] == "BSD-3-Clause" and (ROOT / project["license-files"][0]).exists()
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["repository-code"] == project["urls"]["Source"]


AUDITED = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "not found"}
BAD = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        (None, 2, "NOT AUDITED: pip-audit could not reach its data: no route"),
        ([SKIPPED], 2, "NOT AUDITED: pip-audit found data about none of 1 packages"),
        ([AUDITED, SKIPPED], 0, "audited 1 of 2 packages, not b"),
        ([AUDITED], 0, "audited 1 packages, 0 with known vulnerabilities"),
        ([AUDITED, BAD], 1, "c 2: PYSEC-1, fixed in 3"),
        ([SKIPPED, BAD], 1, "audited 1 of 2 packages, not b"),
    ],
)
def test_audit_reports_unchecked_packages(tmp_path, packages, code, said):
    report, log = tmp_path / "report.json", tmp_path / "log"
    log.write_text("trying\nno route")
    if packages is not None:
        report.write_text(json.dumps({"dependencies": packages}))
    for optional, expected in (("", code), ("optional", 0 if code == 2 else code)):
        command = [sys.executable, ROOT / ".ci" / "audit.py", report, log]
        done = subprocess.run(command, capture_output=True, text=True, env={"AUDIT": optional})
        assert done.returncode == expected, done.stderr
        assert said in done.stdout


def test_space_links_its_bundles_and_refuses_missing_ones(tmp_path):
    with pytest.raises(ValueError, match="none of bench"):
        write_space(tmp_path, {"bench": "Measure"})
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "manifest.json").write_text("{}")
    write_space(tmp_path, {"bench": "Measure <it>"})
    assert '<a href="bench/">Measure &lt;it&gt;</a>' in (tmp_path / "index.html").read_text()
    card = yaml.safe_load((tmp_path / "README.md").read_text().split("---")[1])
    assert (card["sdk"], card["app_file"]) == ("static", "index.html")


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_forms_have_required_fields(path):
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    fields = [item for item in form["body"] if item["type"] != "markdown"]
    assert any(item.get("validations", {}).get("required") for item in fields)
    assert len({item["id"] for item in fields}) == len(fields)


def test_dependency_updates_cover_the_folders_that_pin():
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    named = {update["package-ecosystem"]: ROOT / update["directory"].strip("/") for update in updates}
    assert (named["npm"] / "package-lock.json").exists() and (named["docker"] / "Dockerfile").exists()
