"""traceml-ai, where it is installed, in a process of its own: it patches torch for good, and runs threads."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar, Final

import torch

from .ports import free_port
from .variant import Family, Times, Variant
from .workloads import Workload

PATIENCE_S: Final = 60
"""Seconds that the server and the worker get to start, and a block gets to run."""
ROOT: Final = Path(__file__).resolve().parent.parent


class Traceml(Variant):
    """The same workload in another process under ``traceml.trace_step``, stopped while others have their turn."""

    family: ClassVar[Family] = "others"
    name = "traceml"
    label = "traceml-ai (steps only, own process)"

    def __init__(self, size: str) -> None:
        self._size = size
        self._folder = ""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipe: Connection[Any, Any] | None = None

    def open(self, workload: Workload) -> None:
        """Start server and worker the first time; let them go on after that."""
        if self._pipe is None:
            self._start(workload)
        self._signal(signal.SIGCONT)

    def remote_block(self, warmup: int, steps: int) -> Times | None:
        """Have the worker run a block."""
        assert self._pipe is not None
        self._pipe.send((warmup, steps))
        if not self._pipe.poll(PATIENCE_S):
            raise TimeoutError("the traceml worker does not answer")
        times: Times = self._pipe.recv()
        return times

    def close(self) -> None:
        """Stop both processes where they are: their threads must not disturb the others' turn."""
        self._signal(signal.SIGSTOP)

    def shutdown(self) -> None:
        """End both processes and remove their files."""
        self._signal(signal.SIGCONT)
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                self._pipe.send(None)
            self._pipe.close()
            self._pipe = None
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _signal(self, number: int) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(number)

    def _start(self, workload: Workload) -> None:
        self._folder = tempfile.mkdtemp(prefix="autoprof-bench-")
        port = free_port()
        where = ["--aggregator-port", str(port), "--logs-dir", self._folder]
        script = "from traceml_ai.launcher.cli import main; main()"
        self._run(["-c", script, "serve", *where], ())
        _wait_for(port, self._processes[0])
        mine, theirs = Pipe()
        self._pipe = mine
        arguments = [workload.name, self._size, str(torch.get_num_threads()), str(port), self._folder]
        self._run(["-m", "benchmarks.traceml_worker", str(theirs.fileno()), *arguments], (theirs.fileno(),))
        theirs.close()
        if not mine.poll(PATIENCE_S) or mine.recv() != "ready":
            raise TimeoutError("the traceml worker does not start")

    def _run(self, arguments: list[str], keep: tuple[int, ...]) -> None:
        command = [sys.executable, *arguments]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        # A folder of its own: traceml looks for its configuration in the working directory and above.
        process = subprocess.Popen(command, cwd=self._folder, env=environment, pass_fds=keep, **quiet)
        self._processes.append(process)


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return
        time.sleep(0.1)
    raise TimeoutError("the traceml server does not start")


def variants(size: str) -> list[Variant]:
    """Return the variant, or nothing where traceml-ai is not installed."""
    return [Traceml(size)] if find_spec("traceml_ai") is not None else []
