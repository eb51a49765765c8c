"""A sink of another package: found through its entry point, configured in YAML, fed like the built-in ones."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from forking_python import ForkingPython

import autoprof

PAGE = Path(__file__).parents[2] / "docs" / "extending" / "sink.md"
SINK = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]
"""The example of the page."""

PROGRAM = """
import json, logging, sys, torch
logging.basicConfig()
import autoprof
from autoprof.frontends.cli import main
from autoprof.config.json_schema import json_schema
from autoprof.sinks import parse_config

try:
    parse_config("sinks: {count: {nam: x}}")
except autoprof.ConfigError as error:
    print(error, file=sys.stderr)

model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
session = autoprof.instrument(model, sys.argv[1])
for _ in range(5):
    model(torch.ones(1, 2)).sum().backward()
    session.step()
session.close()
schema = json_schema(autoprof.Config)
print(json.dumps({
    "folder": str(session.folder),
    "field": schema["$defs"]["CountOptions"]["properties"]["name"]["description"],
    "default": "count" in autoprof.Config().sinks.model_dump(exclude_none=True),
    "status": main(["show", str(session.folder), "--count", sys.argv[2]]),
}))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which another package adds the sink ``count``, and one that is defective."""
    site = tmp_path / "site"
    info = site / "third_party-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "third_party.py").write_text(SINK)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[autoprof.sinks]\ncount = third_party:SINK\nbroken = third_party:NOTHING\nno-key = third_party:SINK\n"
    )
    path = os.pathsep.join([str(site), str(Path(autoprof.__file__).parents[1])])
    return {**os.environ, "PYTHONPATH": path}


def test_a_sink_of_another_package_is_one_file_there(
    tmp_path: Path, environment: dict[str, str], forking_python: ForkingPython
) -> None:
    """Options, JSON Schema, frames, summary and ``autoprof show`` all come from its registration.

    A wrong option is named by its key; a package that fails, or whose name is no key, costs one warning each.
    """
    config, out = tmp_path / "run.yaml", tmp_path / "steps.json"
    sinks = "{jsonl: , count: {name: mine.json}}"
    settings = "sample: {budget: null}\ntargets: [{match: '0'}]\nflops: 'off'\n"  # no further warm-up steps
    config.write_text(f"output: {tmp_path / 'runs'}\nsinks: {sinks}\n{settings}")
    command = [*forking_python.command, "-c", PROGRAM, str(config), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert json.loads((Path(found["folder"]) / "rank0" / "mine.json").read_text()) == {
        "steps": [1, 2, 3, 4, 5],
        "recorded": 2,
    }
    assert (found["field"], found["default"]) == ("The name of the file.", False)
    assert (found["status"], json.loads(out.read_text())) == (0, [1, 2, 3, 4, 5])
    assert "sinks.count.nam: the key is unknown; did you mean 'name'?" in done.stderr
    assert "sink 'broken' of another package: AttributeError" in done.stderr
    assert "sink 'no-key' of another package: the name cannot be a key" in done.stderr
