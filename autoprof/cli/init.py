"""``autoprof init``: print a configuration for a model."""

from __future__ import annotations

import argparse
from typing import Any

from ._common import add_command
from .check import MODEL_HELP, load_model


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "init",
        help="print a configuration for a model",
        description=(
            "Print a configuration with a rule for each block of a model and for the modules inside the blocks. It is "
            "not needed: without one the modules that take most of a step are found during the run. The file of MODEL "
            "is imported, so whatever it does outside of functions and of if __name__ == '__main__' is done."
        ),
        examples={
            "autoprof init train:make_model > autoprof.yaml": "a configuration for the model that make_model() returns",
        },
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from .._targets import suggested_yaml

    print(suggested_yaml(load_model(arguments.model), "autoprof.yaml"), end="")
    return 0
