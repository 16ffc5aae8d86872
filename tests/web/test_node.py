"""The npm package in Node, Deno and Bun: bundles from a folder, in a thread or not, and processes that end."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import webpte
from tests.support.harness.gate import slow_but
from tests.support.models.tiny_llm import write_tiny_llm
from webpte.llm import LLM

from .conftest import run_command
from .test_model import one_shape

DOCS = Path(__file__).parents[2] / "docs" / "player.md"
RUN = """
import { load } from "webpte";
const [folder, worker, inputs] = process.argv.slice(2);
const model = await load(folder, { worker: worker === "true" });
const results = await model.run(JSON.parse(inputs));
console.log(JSON.stringify(results.map(({ data, dims }) => ({ data: Array.from(data), dims }))));
model.dispose();
"""
FAIL = """
import { load } from "webpte";
try { await load(process.argv[2]); } catch ({ code, message }) { console.log(JSON.stringify([code, message])); }
"""
COMPLETE = """
import { load } from "webpte";
const [folder, worker] = process.argv.slice(2);
const model = await load(folder, { worker: worker === "true" });
const { choices } = await model.completions.create({ prompt: "a quick", max_tokens: 20, return_token_ids: true });
console.log(JSON.stringify(choices[0].token_ids));
model.dispose();
"""

TURNS = """
import { load } from "webpte";
const [folder, prompts] = process.argv.slice(2);
const model = await load(folder);
const results = [];
for (const prompt of JSON.parse(prompts)) {
  const asked = { prompt, max_tokens: 8, temperature: 0, return_token_ids: true };
  const { choices, usage } = await model.completions.create(asked);
  results.push([choices[0].token_ids, usage.prompt_tokens_details.cached_tokens]);
}
console.log(JSON.stringify(results));
model.dispose();
"""


@pytest.fixture
def installed(project, node_modules):
    """Return the folder of a user that has installed both packages."""
    modules = project / "node_modules"
    for name in ("webgpu", "debug", "ms"):
        if not (modules / name).exists():
            (modules / name).symlink_to(node_modules / name)
    yield project
    for name in ("webgpu", "debug", "ms"):
        (modules / name).unlink()


def run_script(folder, text, *args, command=("node",)):
    """Return what a script writes, which must end by itself."""
    (folder / "script.mjs").write_text(text)
    return json.loads(run_command(*command, "script.mjs", *args, cwd=folder).splitlines()[-1])


@pytest.mark.parametrize("worker", ["true", "false"])
def test_folder_in_node_gives_native_results_and_ends(worker, installed, bundled):
    exported, site = bundled("add_external", one_shape)
    step = exported.steps[0]
    inputs = [{"data": array.ravel().tolist(), "dims": array.shape} for array in step.inputs]
    results = run_script(installed, RUN, str(site), worker, json.dumps(inputs))
    for result, expected in zip(results, step.outputs, strict=True):
        np.testing.assert_allclose(np.reshape(result["data"], result["dims"]), expected, rtol=1e-5, atol=1e-5)


def test_missing_bundle_error_names_path_and_command(installed, tmp_path):
    code, message = run_script(installed, FAIL, str(tmp_path / "none"))
    assert code == "network" and str(tmp_path / "none" / "manifest.json") in message and "webpte bundle" in message


def test_missing_webgpu_error_names_package(project, tmp_path):
    code, message = run_script(project, FAIL, str(tmp_path))
    assert code == "webgpu-missing" and "npm install webgpu" in message


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return the bundle of a language model, and its tokens in Python for the request of `COMPLETE`."""
    folder = write_tiny_llm(tmp_path_factory.mktemp("tiny"))
    with webpte.load(folder / "tiny.pte") as program:
        webpte.bundle(program, folder / "site", name="tiny", sequences=2)
    with LLM.load(folder / "tiny.pte", max_sequences=2) as llm:
        generation = llm.complete("a quick", max_new_tokens=20, speculate=False)
        generation.result()
        chat = str(llm.generate([{"role": "user", "content": "hi"}], max_new_tokens=200))
    return folder / "site", generation.tokens, chat


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "reused"), [("gemma3", [0, 20, 11]), ("lfm2", [0, 20, 11]), ("qwen3_5", [0, 19, 0])]
)
def test_model_with_other_states_turns_in_node_equal_python(family, reused, installed, tmp_path):
    """The second prompt continues the first, the third parts from it before its end.

    LFM2 keeps inputs of 64 tokens; Qwen3.5 has a checkpoint before the last token of the first prompt.
    """
    from tests.studies.families.measuring import measured
    from tests.support.models.families import first

    path = measured(first(family)).path
    with webpte.load(path) as program:
        webpte.bundle(program, tmp_path / "site", sequences=2)
    prompts = [[*range(3, 23)], [*range(3, 23), 50, 51, 52], [*range(3, 14), 60, 61]]
    with LLM.load(path) as llm:
        answers = [llm.generate(tokens=prompt, max_new_tokens=8, speculate=False) for prompt in prompts]
        expected = [(answer.result(), answer.tokens)[1] for answer in answers]
    results = run_script(installed, TURNS, str(tmp_path / "site"), json.dumps(prompts))
    assert [tokens for tokens, _ in results] == expected
    assert [cached for _, cached in results] == reused


def test_server_of_the_documentation_streams_and_refuses(installed, tiny):
    site, _, expected = tiny
    (script,) = re.findall(
        r"^```js\n(// server\.mjs.*?)^```", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    ready = 'server.on("listening", () => console.log(server.address().port));\n'
    (installed / "server.mjs").write_text(
        script.replace('load("site")', f"load({json.dumps(str(site))})").replace(
            "server.listen(8000", f"{ready}server.listen(0"
        )
    )
    with subprocess.Popen(["node", "server.mjs"], cwd=installed, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{int(process.stdout.readline())}/chat"

            def ask(body: object) -> str:
                request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
                with urllib.request.urlopen(request, timeout=60) as response:
                    return response.read().decode()

            assert ask({"messages": [{"role": "user", "content": "hi"}]}) == expected
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask({"messages": "no list"})
            with refused.value as response:
                assert response.code == 400
        finally:
            process.terminate()


@pytest.mark.parametrize("worker", ["true", "false"])
@pytest.mark.parametrize("runtime", slow_but([], ["deno", "bun"]))
def test_generate_in_deno_and_bun_equals_python(runtime, worker, installed, tiny):
    site, expected, _ = tiny
    run_command("npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", "tools", runtime, cwd=installed)
    binary = installed / "tools" / "node_modules" / ".bin" / runtime
    command = (binary, "run", "--allow-all") if runtime == "deno" else (binary,)
    assert run_script(installed, COMPLETE, str(site), worker, command=command) == expected
