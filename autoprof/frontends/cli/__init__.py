"""The command ``autoprof``: one module per command. A user's error is one message, not a traceback."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from ...base.version import VERSION
from ...errors import AutoprofError, nearest
from ._common import exit_status_text

COMMANDS: Final = (
    "run",
    "attach",
    "detach",
    "demo",
    "check",
    "show",
    "report",
    "explain",
    "skill",
    "compare",
    "ranks",
    "inspect",
    "doctor",
)
"""The commands in the order of the help: each is a module with ``add`` and ``run``, imported when it is called."""
DESCRIPTION = """An always-on profiler for PyTorch training.

RUN is the folder of a run. Where it is left out, the latest run in the folder runs is meant.
"""


def make_parser(name: str | None = None) -> argparse.ArgumentParser:
    """Return the parser with all commands, or with one: the options of some load torch."""
    parser = argparse.ArgumentParser(
        prog="autoprof",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"autoprof COMMAND --help has examples.\n\n{exit_status_text()}",
    )
    parser.add_argument("--version", action="version", version=f"autoprof {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in (name,) if name in COMMANDS else COMMANDS:
        module = import_module(f".{command}", __name__)
        module.add(commands)
        commands.choices[command].set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status, one of ``EXIT_STATUS``."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[1:2] == ["run"] and given[0].startswith(("--local_rank=", "--local-rank=")):  # put there by a launcher
        given[:2] = ["run", given[0]]
    if given and not given[0].startswith("-") and given[0] not in COMMANDS:
        print(f"autoprof: {given[0]!r} is not a command; {nearest(given[0], COMMANDS)}", file=sys.stderr)
        return 2
    parser = make_parser(given[0] if given else None)
    arguments, unknown = parser.parse_known_args(given)
    if unknown:  # argparse would print the usage of all commands
        where = f"autoprof {given[0]}" if given[0] in COMMANDS else "autoprof"
        problem = "is not an option" if unknown[0].startswith("-") else "is one argument too many"
        print(f"{where}: {' '.join(unknown)} {problem}; {where} --help has those allowed", file=sys.stderr)
        return 2
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        return int(arguments.run(arguments))
    except AutoprofError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has closed it: end quietly, as filters do
        sys.stderr.close()
        return 141
    except Exception:  # Python's own exit status is 1, the answer no
        traceback.print_exc()
        return 2
