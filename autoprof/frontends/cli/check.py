"""``autoprof check``: check a configuration, show the modules that it selects in a model, or check a saved run."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import AutoprofError, OutputError
from ._common import add_command, print_json, print_lines

MOST_SHOWN: Final = 20
"""Broken laws that are printed."""

if TYPE_CHECKING:
    from ...targets import Selection


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "check",
        help="check a configuration, and show what it selects in a model; or check a saved run",
        description=(
            "Check a configuration file: every problem is reported with its line. With MODEL, show the modules of the "
            "model that the configuration selects, by the name that it gives to them; without a file, the modules with "
            "which a run without a configuration begins. With the folder of a run: whether spans nest, and times add "
            "up, in each of its recorded steps and in its statistics."
        ),
        examples={
            "autoprof check autoprof.yaml": "check a file",
            "autoprof check train:make_model autoprof.yaml": "the modules that the file selects",
            "autoprof check runs/2026-11-20_10-00-00-ab12": "do the times of a run add up?",
            "autoprof check --schema > autoprof.schema.json": "the JSON Schema, for an editor",
        },
    )
    parser.add_argument(
        "checked",
        metavar="MODEL",
        nargs="*",
        help="a function or class that returns a model when it is called without arguments, as package.module:name or "
        "path/to/file.py:name (a tuple that begins with a model is allowed), then a YAML file; either alone; or "
        "the folder of a run",
    )
    parser.add_argument("--json", action="store_true", help="print the selected modules as JSON")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of configurations")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ...config.json_schema import json_schema
    from ...sinks import Config, load_config
    from ...targets import select_targets

    if arguments.schema:
        print_json(json_schema(Config))
        return 0
    checked: list[str] = arguments.checked
    if len(checked) == 1 and Path(checked[0]).is_dir():
        return _check_run(checked[0])
    files = [one for one in checked if one.endswith((".yaml", ".yml"))]
    models = [one for one in checked if one not in files]
    if not checked or max(len(files), len(models)) > 1:
        raise AutoprofError("check: allowed: MODEL, MODEL FILE.yaml, FILE.yaml, or the folder of a run")
    config = load_config(files[0] if files else None)
    if not models:
        print(f"{files[0]}: ok, {len(config.targets)} rules and {len(config.functions)} functions")
        return 0
    model = _load_model(models[0])
    selection = select_targets(model, config)
    if arguments.json:
        targets = [
            {"fqn": one.fqn, "name": one.name, "phases": sorted(map(str, one.phases)), "memory": one.memory}
            for one in selection
        ]
        print_json({"targets": targets, "notes": list(selection.notes)})
        return 0
    print_lines(_selected(selection))
    return 0


def _check_run(path: str) -> int:
    from ...base.storage.runs import find_run, read_run
    from ...base.units import count

    run = read_run(find_run(path))
    steps, broken = 0, list[str]()
    for rank in run.ranks:
        for frame in run.rank_frames(rank):
            steps += 1
            broken += [f"rank {rank}, step {frame.step}: {law}" for law in frame.check()]
        summary = run.rank_summary(rank)
        broken += [f"rank {rank}: {law}" for law in ([] if summary is None else summary.check())]
    if not steps:
        raise OutputError(f"{run.path}: has no recorded steps to check; the sink jsonl writes them")
    if not broken:
        print(f"{run.path}: ok, {count(steps, 'recorded step')} of {count(len(run.ranks), 'rank')}")
        return 0
    print_lines(_shortened(broken))
    return 1


def _shortened(lines: list[str]) -> Iterator[str]:
    yield from lines[:MOST_SHOWN]
    if len(lines) > MOST_SHOWN:
        yield f"… and {len(lines) - MOST_SHOWN} more"


def _selected(selection: Selection) -> list[str]:
    """Return a line for each name with the first and the last of its modules, then the notes."""
    from ...reports.text import cells, pad

    fqns: dict[str, list[str]] = {}
    for one in selection:
        if one.shown:
            fqns.setdefault(one.name, []).append(one.fqn)
    modules = [found[0] if len(found) == 1 else f"{found[0]} … {found[-1]} ({len(found)})" for found in fqns.values()]
    width = max(map(cells, ["name", *fqns]))
    lines = [
        f"{pad(name, width)}  {of_name}" for name, of_name in zip(["name", *fqns], ["modules", *modules], strict=True)
    ]
    return [*lines, *(f"note: {note}" for note in selection.notes)]


def _load_model(name: str) -> Any:
    """Return the model that a name of a command stands for; prints of the user's own code go to standard error."""
    from ..doctor import load_subject

    with contextlib.redirect_stdout(sys.stderr):
        return load_subject(name, option="MODEL").model
