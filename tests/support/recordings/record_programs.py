# mypy: disable-error-code="import-not-found"
"""Record what programs send to a server: `python record_programs.py clients.json`, beside their packages.

    npm install --ignore-scripts @continuedev/cli

It replaces the requests of these programs in the file. Descriptions and long texts of a program are left out: what
matters is where they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import ANSWERS, CHAT, Recorded, Server, chat_answer

PACKAGE = Path("node_modules", "@continuedev", "cli").resolve()
NAME = "continue-cli"
MAX_TEXT = 40  # characters of a text that is kept


def agent_answer(body: Any) -> Any:
    """Call the tool that lists files, and answer with a text after its result."""
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    if "List" not in names or body["messages"][-1]["role"] == "tool":
        return chat_answer({**body, "tools": None})
    text = json.dumps(chat_answer(body))
    arguments = json.dumps(json.dumps({"dirpath": "."})), json.dumps(json.dumps({"city": "Oslo"}))
    return json.loads(text.replace('"weather"', '"List"').replace(arguments[1], arguments[0]))


def without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: "A text." if name == "description" else without_texts(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_texts(item) for item in value]
    long = isinstance(value, str) and (len(value) > MAX_TEXT or "\n" in value)
    return value.split()[0] if long else value


def with_few_tools(body: Any) -> Any:
    """Keep the tools whose schemas differ in kind: the one that is called, and one with a nested schema."""
    tools = body.get("tools") or []
    nested = [tool for tool in tools if '"items"' in json.dumps(tool)][:1]
    kept = [tool for tool in tools if tool["function"]["name"] == "List"] + nested
    return {**body, "tools": kept} if tools else body


def main() -> None:
    ANSWERS["/v1/chat/completions"] = agent_answer
    server = Server()
    model = {"name": "local", "provider": "openai", "model": CHAT, "apiBase": f"{server.url}/v1", "apiKey": "none"}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")  # JSON is YAML
        fields = {"name": "local", "version": "1.0.0", "schema": "v1", "models": [model]}
        config.write_text(json.dumps(fields), encoding="utf-8")
        work = Path(folder, "work")
        work.mkdir()
        command = ["node", str(PACKAGE / "dist" / "cn.js"), "-p", "Which files are here?", "--config", str(config)]
        environment = {**os.environ, "HOME": folder, "CONTINUE_TELEMETRY_ENABLED": "0"}
        done = subprocess.run(command, cwd=work, env=environment, timeout=120, capture_output=True, text=True)
    assert "Hello." in done.stdout, done
    version = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))["version"]
    path = Path(sys.argv[1])
    recorded: list[Recorded] = [each for each in json.loads(path.read_text("utf-8")) if each["client"] != NAME]
    features = ("agent, streamed", "result of a tool, streamed")
    for feature, (method, url, body, answer) in zip(features, server.requests, strict=True):
        entry: Recorded = {
            "client": NAME, "version": version, "feature": feature,
            "method": method, "path": url, "body": without_texts(with_few_tools(body)), "answer": answer,
        }  # fmt: skip
        recorded.append(entry)
    lines = ",\n".join(json.dumps(entry, sort_keys=True) for entry in recorded)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
