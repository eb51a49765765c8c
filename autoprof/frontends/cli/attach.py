"""``autoprof attach``: record a training that runs already."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from ...errors import AutoprofError
from ._common import add_command

EPILOG = """\
The process need not have been started with autoprof. From Python 3.14 on any process of the same user can be reached, \
an older one if it was started with AUTOPROF_ATTACH=1 in its environment. The session opens and closes at the end of \
an optimizer step, on the thread that trains. The results of the training do not change; it goes on after the end."""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "attach",
        help="record a training that runs already, until Ctrl-C",
        description="Open a session in a process that trains already, print its report at the end, and close it.",
        epilog=EPILOG,
        examples={
            "autoprof attach 4242": "record until Ctrl-C here, then print the report and detach",
            "autoprof attach 4242 --steps 200": "detach after 200 steps",
            "autoprof attach --job 4242": "all ranks that this launcher, such as torchrun, has started here",
        },
        allow_abbrev=False,
    )
    add_processes(parser)
    parser.add_argument("--steps", type=_count, metavar="N", help="detach after so many steps")
    parser.add_argument("--config", metavar="FILE", help="the YAML file with rules and sinks (default: no rules)")
    parser.add_argument(
        "--output", metavar="FOLDER", help="the folder for run folders (default: the key output, which is runs)"
    )


def add_processes(parser: Any) -> None:
    """Add the arguments that name processes."""
    parser.add_argument("pid", metavar="PID", type=_count, help="the number of the process that trains")
    parser.add_argument(
        "--job", action="store_true", help="PID is a launcher, such as torchrun: all ranks that it started on this host"
    )
    parser.add_argument(
        "--wait", type=float, default=60.0, metavar="S", help="seconds to wait for the end of a step (default: 60)"
    )


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ..attach.command import attach
    from ..attach.exchange import Request

    if arguments.config is not None:
        from ...sinks import load_config

        load_config(arguments.config)
    processes = find_processes(arguments)
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        raise AutoprofError("attach: the working directory is gone; change to another, which gets the runs") from None
    request = Request(
        folder,
        config=arguments.config,
        output=arguments.output,
        name=f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-attach-{arguments.pid}",
        steps=arguments.steps,
        waits=len(processes) > 1,
    )
    return attach(processes, request, arguments.wait)


def find_processes(arguments: argparse.Namespace) -> Any:
    """Return the processes that the arguments name."""
    from ..attach.process import find_process, find_ranks

    return [find_process(pid) for pid in (find_ranks(arguments.pid) if arguments.job else [arguments.pid])]
