"""The command ``autoprof``: one module per command. A user's error is one message, not a traceback."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import AutoprofError
from . import compare, config, demo, doctor, inspect, report, rules, show

COMMANDS = (demo, show, report, compare, inspect, config, doctor, rules)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status, 2 for an error of usage or input, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(prog="autoprof", description="An always-on profiler for PyTorch training.")
    parser.add_argument("--version", action="version", version=f"autoprof {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        command.add(commands)
    arguments = parser.parse_args(argv)
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
