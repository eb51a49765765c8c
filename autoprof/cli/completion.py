"""``autoprof completion``: print the completion of the command for a shell."""

from __future__ import annotations

import argparse
from typing import Any, Final

from ..errors import AutoprofError, import_extra
from ._help import add_command

FILES: Final = ("FILE", "FOLDER", "RUN", "OTHER", "LOG", "CONFIG", "MODEL", "PROGRAM", "SCRIPT")
"""The metavars of arguments that are completed with file names."""


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "completion",
        help="print the completion for bash, zsh or fish",
        description=(
            "Print a script that completes the commands and options of autoprof in a shell. The script runs no Python, "
            "so it answers at once. Needs: pip install 'torch-autoprof[completion]'."
        ),
        examples={
            "autoprof completion bash > ~/.local/share/bash-completion/completions/autoprof": "bash",
            "autoprof completion zsh > ~/.zfunc/_autoprof": "zsh, with ~/.zfunc in fpath before compinit",
            "autoprof completion fish > ~/.config/fish/completions/autoprof.fish": "fish",
        },
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from . import make_parser

    shtab = import_extra("shtab", "completion", "autoprof completion")
    if arguments.shell not in shtab.SUPPORTED_SHELLS:
        known = ", ".join(shtab.SUPPORTED_SHELLS)
        raise AutoprofError(f"shtab {shtab.__version__} has no {arguments.shell}; allowed: {known}, or a newer shtab")
    parser = make_parser()
    _complete_files(parser, shtab.FILE)
    print(shtab.complete(parser, arguments.shell))
    return 0


def _complete_files(parser: argparse.ArgumentParser, kind: Any) -> None:
    """Mark the arguments that are files or folders, in all commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_files(command, kind)
        elif action.metavar in FILES:
            action.complete = kind  # type: ignore[attr-defined]
