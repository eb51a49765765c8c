"""``autoprof init``: write a configuration for a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..errors import OutputError
from ._common import add_command


def add(commands: Any) -> None:
    """Add the command."""
    from ._model import add_model

    parser = add_command(
        commands,
        "init",
        help="write a configuration for a model",
        description=(
            "Write a configuration with a rule for each block of a model and for the modules inside the blocks, as far "
            "as a screen of rows holds. No step is run. A configuration is not needed: without one the modules that "
            "take most of a step are found during the run."
        ),
        examples={
            "autoprof init train:make_model": "print the configuration of the model that train.make_model() returns",
            "autoprof init src/net.py:Net -o autoprof.yaml": "write it to a file",
        },
    )
    add_model(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file, which must not exist (or --force)")
    parser.add_argument("--force", action="store_true", help="overwrite the file")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from .._storage.atomic import write_atomic
    from .._targets import suggested_yaml
    from ._model import load_model

    path = None if arguments.output is None else Path(arguments.output)
    if path is not None and path.exists() and not arguments.force:
        raise OutputError(f"-o: {path} exists; allowed: another file, or --force to overwrite it")
    text = suggested_yaml(load_model(arguments.model), arguments.output or "autoprof.yaml")
    if path is None:
        print(text, end="")
        return 0
    try:
        write_atomic(path, text)
    except OSError as error:
        raise OutputError(f"-o: {path} cannot be written ({error.strerror}); allowed: a file in a folder") from error
    print(f"{path} written; autoprof check {arguments.model} {path} shows its modules", file=sys.stderr)
    return 0
