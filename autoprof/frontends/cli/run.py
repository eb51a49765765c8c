"""``autoprof run``: run a training program unchanged, and record every training in it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ...base.process.switch import is_off
from ...errors import AutoprofError
from ..launch.settings import LaunchSettings
from ._common import add_command

LAUNCHER_VARIABLES: Final = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK",
    "SLURM_STEP_NUM_TASKS",
)  # fmt: skip
"""Set by a launcher that starts the command once for each rank, as ``base.process.ranks`` reads them, with torch."""
EPILOG: Final = """\
Models, optimizers, loaders and steps are found automatically; the report is printed to the standard error at the end \
of each training. The exit status is that of the program; 2 if the command or its configuration is wrong."""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "run",
        help="run a training program unchanged, and record every training in it",
        usage="autoprof run [--config FILE] [--output FOLDER]\n"
        "                    (PROGRAM | -m MODULE | -c CODE) [ARGUMENT ...]",
        description="Run a training program unchanged, and record every training in it.",
        epilog=EPILOG,
        examples={
            "autoprof run train.py --epochs 3": "in place of python train.py --epochs 3",
            "autoprof run --config rules.yaml train.py": "record the modules that the rules name",
            "autoprof run --output /data/runs train.py": "put the run's folder elsewhere",
            "autoprof run -m package.train --epochs 3": "a module, as with python -m",
            "torchrun --nproc-per-node 4 -m autoprof run train.py": "each rank of torchrun",
            "accelerate launch -m autoprof run train.py": "each process of accelerate",
            "deepspeed --module autoprof run train.py": "each rank of DeepSpeed",
            "AUTOPROF=0 autoprof run train.py": "run the program only",
        },
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="the YAML file with rules and sinks (default: no rules)")
    parser.add_argument(
        "--output", metavar="FOLDER", help="the folder for run folders (default: the key output, which is runs)"
    )
    for option in ("--local_rank", "--local-rank"):  # DeepSpeed and torch.distributed.launch put one of them there
        parser.add_argument(
            option, dest="local_rank", action="append", default=[], type=f"{option}={{}}".format, help=argparse.SUPPRESS
        )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module as a program"
    )
    parser.add_argument("-c", dest="code", nargs=argparse.REMAINDER, metavar="CODE", help="run this Python code")
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM",
        help="a Python file, or a command that starts Python, such as torchrun; all that follows are its arguments",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    command = _command(arguments)
    environment = dict(os.environ)
    if not is_off(environment):
        _check_python()
        _settings(arguments).write(environment)
    sys.stdout.flush()
    if os.name == "nt":  # exec would return to the shell at once
        import subprocess

        return subprocess.call(command, env=environment)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise AutoprofError(f"autoprof run: {command[0]}: cannot be started ({error.strerror})") from error


def _command(arguments: argparse.Namespace) -> list[str]:
    """Return the command that runs the program without autoprof."""
    python = [sys.executable, *_python_options()]
    for option, given in (("-m", arguments.module), ("-c", arguments.code)):
        if given is not None:
            if not given:
                raise AutoprofError(f"autoprof run: {option} needs an argument; {_usage()}")
            return [*python, option, given[0], *arguments.local_rank, *given[1:]]
    program: list[str] = arguments.program
    if program[:1] == ["--"]:
        program = program[1:]
    if not program:
        raise AutoprofError(f"autoprof run: no program is named; {_usage()}")
    program = [program[0], *arguments.local_rank, *program[1:]]
    return program if _is_command(program[0]) else [*python, *program]


def _usage() -> str:
    return "allowed: autoprof run train.py, autoprof run -m package.train; see autoprof run --help"


def _is_command(program: str) -> bool:
    """Return whether this is no Python file but a command, such as ``torchrun`` or a shell script."""
    path = Path(program)
    if not path.exists():
        return not program.endswith(".py") and shutil.which(program) is not None
    if path.is_dir() or not os.access(path, os.X_OK):
        return False
    with path.open("rb") as file:
        first = file.readline(200)
    return first.startswith((b"#!", b"\x7fELF", b"\xcf\xfa\xed\xfe")) and b"python" not in first


def _python_options() -> Sequence[str]:
    """Return the options that Python itself was given, such as ``-u`` or ``-X dev``."""
    given = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    return given[:-2] if given[-2:-1] == ["-m"] else given[:-1]  # without autoprof itself


def _check_python() -> None:
    flags = sys.flags
    for flag, option in ((flags.isolated, "-I"), (flags.ignore_environment, "-E"), (flags.no_site, "-S")):
        if flag:
            raise AutoprofError(
                f"autoprof run: python was started with {option}, which prevents recording; start it without {option}"
            )


def _settings(arguments: argparse.Namespace) -> LaunchSettings:
    config = arguments.config
    if config is not None:
        from ...sinks import load_config

        load_config(config)
        config = os.path.abspath(config)
    alone = not any(variable in os.environ for variable in LAUNCHER_VARIABLES)
    name = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}" if alone else None
    return LaunchSettings(os.getpid(), os.getcwd(), config, arguments.output, name)
