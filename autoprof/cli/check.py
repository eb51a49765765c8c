"""``autoprof check``: show a model's tree with the modules that a configuration selects."""

from __future__ import annotations

import argparse
from typing import Any

from ._common import add_command, print_json, terminal


def add(commands: Any) -> None:
    """Add the command."""
    from ._model import add_model

    parser = add_command(
        commands,
        "check",
        help="show a model's tree with the modules that a configuration selects",
        description=(
            "Show the modules of a model as a tree, with their classes and parameters, and the name that a "
            "configuration gives to each module that it selects. Siblings that are alike share a line. Without CONFIG, "
            "the modules with which a run without a configuration begins. A rule that selects nothing is an error."
        ),
        examples={
            "autoprof check train:make_model autoprof.yaml": "the modules that the file selects",
            "autoprof check src/net.py:Net --depth 2": "the first two levels of the model",
            "autoprof check train:make_model autoprof.yaml --json": "the selected modules, for a program",
        },
    )
    add_model(parser)
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="the YAML file (default: none)")
    parser.add_argument("--depth", type=int, metavar="N", help="levels shown below the model (default: all selected)")
    parser.add_argument("--json", action="store_true", help="print the selected modules as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from .._targets import select_targets
    from ..errors import AutoprofError
    from ..sinks import load_config
    from ._model import load_model
    from ._model_tree import render_model

    if arguments.depth is not None and arguments.depth < 1:
        raise AutoprofError(f"--depth: {arguments.depth} is not a number of levels; allowed: 1 or more")
    config = load_config(arguments.config)
    model = load_model(arguments.model)
    selection = select_targets(model, config)
    if arguments.json:
        targets = [
            {"fqn": one.fqn, "name": one.name, "phases": sorted(map(str, one.phases)), "memory": one.memory}
            for one in selection
        ]
        print_json({"targets": targets, "notes": list(selection.notes)})
        return 0
    width, encoding = terminal()
    lines = render_model(model, selection, depth=arguments.depth, width=max(width, 80), encoding=encoding)
    print("\n".join(lines))
    return 0
