"""A group of processes, one a rank, that train one run after the other; a run that hangs ends the group."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from ..ports import free_port
from .faults import RANKS, Run

TIME_LIMIT_S: Final = 90.0
"""The time after which a run counts as hung."""


def serve(rank: int, port: int, commands: Any, log: str) -> None:
    """Train the runs that are sent, until there are no more."""
    import torch
    import torch.distributed as dist

    from .training import train

    sys.stdout = sys.stderr = Path(log).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    commands.send("ready")
    while (task := commands.recv()) is not None:
        run, output = task
        try:
            dist.barrier()
            commands.send(("done", train(run, rank, Path(output))))
        except Exception:  # a program would end here, and so wake the ranks that wait for this one
            commands.send(("failed", traceback.format_exc()))
            os._exit(1)
    dist.destroy_process_group()


class Group:
    """The processes of a group."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rank_faults-"))
        context = get_context("spawn")
        port = free_port()
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(RANKS):
            here, there = context.Pipe()
            log = str(self._folder / f"rank{rank}.log")
            process = context.Process(target=serve, args=(rank, port, there, log), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        for pipe in self._pipes:
            if not pipe.poll(TIME_LIMIT_S):
                self.end()
                raise RuntimeError("the processes do not start")
            pipe.recv()

    def train(self, run: Run) -> dict[str, Any]:
        """Train a run; return rank 0's findings, or how it failed, and its time. The group is ended after a failure."""
        output = self._folder / f"run{run.number}"
        began = time.monotonic()
        for pipe in self._pipes:
            pipe.send((run, str(output)))
        answers: dict[int, Any] = {}
        open_pipes = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        while open_pipes and time.monotonic() - began < TIME_LIMIT_S:
            for ready in wait(list(open_pipes), timeout=1.0):
                assert isinstance(ready, Connection)
                rank = open_pipes.pop(ready)
                try:
                    answers[rank] = ready.recv()
                except EOFError:
                    answers[rank] = ("ended", None)
        seconds = time.monotonic() - began
        result: dict[str, Any] = {"seconds": seconds, "hung": bool(open_pipes)}
        kind, value = answers.get(0, ("hung", None))
        result["findings"] = value if kind == "done" else []
        result["errors"] = {rank: f"{answer[1]}" for rank, answer in answers.items() if answer[0] == "failed"}
        result["ended"] = sorted(rank for rank, answer in answers.items() if answer[0] == "ended")
        result["saved"] = _saved_findings(output) if kind != "done" else None
        result["recorded"] = [_recorded_steps(output, rank) for rank in range(RANKS)]
        shutil.rmtree(output, ignore_errors=True)
        return result

    def end(self) -> None:
        """End the processes, by force where they do not end."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self._processes:
            process.join(5.0)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _saved_findings(output: Path) -> str | None:
    """Return rank 0's summary.txt, of a run whose training failed and whose session was closed by the failure."""
    found = sorted(output.glob("*/summary.txt"))
    return found[0].read_text(encoding="utf-8") if found else None


def _recorded_steps(output: Path, rank: int) -> list[int]:
    """Return the numbers of the steps that a rank has recorded."""
    steps = []
    for path in output.glob(f"*/rank{rank}/steps.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError, KeyError):  # a line that a kill has cut
                steps.append(int(json.loads(line)["step"]))
    return steps
