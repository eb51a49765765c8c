"""``autoprof attach`` and ``autoprof detach``: ask processes, wait for their replies, and print their reports."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ...errors import AutoprofError
from ...reports.text import in_encoding
from .exchange import (
    REQUEST,
    SCRIPT,
    START,
    TEXT,
    Request,
    make_folder,
    owner_lives,
    process_folder,
    read_replies,
    remove_stale,
    write_whole,
)
from .injection import pass_request
from .process import Process

POLL_S: Final = 0.05
ARM_S: Final = 10.0
"""The main thread of a process takes the request between two of its instructions."""
AHEAD_S: Final = 0.5
"""The time before the step end at which several ranks begin: each of them reads its number by then."""


class Asked:
    """One process that was asked to attach, its replies, and the command that reads them."""

    def __init__(self, process: Process, exchange: Path, command: str = "attach") -> None:
        self.process, self.exchange = process, exchange
        self.command = command
        self._replies: list[dict[str, Any]] = []
        self._printed = 0

    def replies(self, state: str) -> list[dict[str, Any]]:
        """Return the replies of a state so far. Raises ``AutoprofError`` where the process could not do it."""
        self._replies += read_replies(self.exchange, len(self._replies))
        for one in self._replies:
            if one["state"] == "failed":
                raise AutoprofError(f"{self.command}: {self.process.pid}: {one['reason']}")
        return [one for one in self._replies if one["state"] == state]

    def withdraw(self) -> None:
        """Remove the request: a session that is open closes at the next step end, and no other opens."""
        (self.exchange / REQUEST).unlink(missing_ok=True)

    @property
    def has_printed(self) -> bool:
        """Whether there was any text."""
        return self._printed > 0

    def new_text(self) -> str:
        """Return the text that the session has printed since the last call."""
        try:
            with open(self.exchange / TEXT, encoding="utf-8") as file:
                file.seek(self._printed)
                text = file.read()
                self._printed = file.tell()
                return text
        except FileNotFoundError:
            return ""


def attach(processes: Sequence[Process], request: Request, wait_s: float) -> int:
    """Record the processes until they end, the steps are over, or Ctrl-C; print the texts of their sessions."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # the end of the terminal is the end of the recording
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    with _asked(processes, request) as asked:
        try:
            _wait(
                asked,
                "armed",
                min(ARM_S, wait_s),
                "its main thread executes no Python code now{where}; nothing was changed in it",
            )
            if len(asked) > 1:
                _begin_together(asked, wait_s)
            _wait(asked, "recording", wait_s, "no optimizer made a step in {wait:g} s; nothing was changed in it")
            folder = asked[0].replies("recording")[0]["folder"]
            files = "" if folder is None else f"; files in {os.path.relpath(folder)}"
            say(f"recording {_named(asked)}{files}; Ctrl-C ends it")
            _follow(asked)
        except KeyboardInterrupt:
            for one in asked:
                one.withdraw()
            if not all(one.replies("recording") for one in asked):
                say("given up; nothing is recorded")
                return 130
            say("closing at the end of the step; a second Ctrl-C leaves this to the process")
            _follow(asked)
        if not any(one.has_printed for one in asked):
            say(f"the session could not print here: is there room in {asked[0].exchange}? autoprof show has the report")
        stays = [one["stays"] for one in asked[0].replies("closed") if "stays" in one]
        say(f"detached; there stay {stays[0]}" if stays else f"{_named(asked)} has ended")
    return 0


def detach(processes: Sequence[Process], wait_s: float) -> int:
    """Close the sessions that ``autoprof attach`` has opened in these processes."""
    for process in processes:
        requests = sorted(process_folder(os.getpid(), process.uid).parent.glob(f"*/{process.pid}-*/{REQUEST}"))
        if not requests:
            raise AutoprofError(f"detach: {process.pid}: autoprof attach has opened no session in it")
        asked = [Asked(process, path.parent, "detach") for path in requests]
        for one in asked:
            one.withdraw()
        taken = [one for one in asked if one.replies("armed")]  # the others find no request any more
        _wait(taken, "closed", wait_s, "no optimizer made a step in {wait:g} s; its session closes at the next one")
        for one in asked:
            if not owner_lives(one.exchange.parent, process.uid):
                _remove(one.exchange)
        opened = any(one.replies("recording") for one in asked)
        done = "is detached; autoprof explain has the report" if opened else "had no open session, and opens none"
        say(f"{_named(asked)} {done}", "detach")
    return 0


def say(text: str, command: str = "attach") -> None:
    """Print one line about the command itself."""
    print(f"autoprof {command}: {text}", file=sys.stderr, flush=True)


@contextmanager
def _asked(processes: Sequence[Process], request: Request) -> Iterator[list[Asked]]:
    """Pass the request to each process; remove all files of it at the end, which closes sessions."""
    with ExitStack() as files:
        asked: list[Asked] = []
        for process in processes:
            own = process_folder(os.getpid(), process.uid)
            make_folder(own, process.uid)
            remove_stale(process.uid)
            exchange = Path(tempfile.mkdtemp(prefix=f"{process.pid}-", dir=own))
            files.callback(_remove, exchange)
            pass_request(process, request.write(exchange))
            asked.append(Asked(process, exchange))
        yield asked


def _remove(exchange: Path) -> None:
    """Remove the files of an exchange. Python prints an error where the script is gone that it has still to execute."""
    if read_replies(exchange) or not (exchange / SCRIPT).exists():
        shutil.rmtree(exchange, ignore_errors=True)
        with suppress(OSError):  # that of another process is there
            exchange.parent.rmdir()
    else:
        (exchange / REQUEST).unlink(missing_ok=True)


def _wait(asked: Sequence[Asked], state: str, limit_s: float, problem: str) -> None:
    """Wait until all have replied. Raises ``AutoprofError`` where one ends, or does not reply in time."""
    until_s = time.monotonic() + limit_s
    for one in asked:
        while not one.replies(state):
            pid = one.process.pid
            if not one.process.is_alive:
                raise AutoprofError(f"{one.command}: {pid}: has ended meanwhile")
            if time.monotonic() > until_s:
                where = f" (it waits in {one.process.blocks_in})" * bool(one.process.blocks_in)
                raise AutoprofError(f"{one.command}: {pid}: {problem.format(where=where, wait=limit_s)}")
            time.sleep(POLL_S)


def _begin_together(asked: Sequence[Asked], wait_s: float) -> None:
    """Have all ranks open their sessions at the end of the same step.

    Ranks that exchange gradients end a step at nearly the same time, so each rank's last step end before the request is
    that of the first rank which lies nearest in time.
    """
    _wait(asked, "step", wait_s, "no optimizer made a step in {wait:g} s; nothing was changed in it")
    until_s = time.monotonic() + wait_s
    while min(len(one.replies("step")) for one in asked) < 3:
        if time.monotonic() > until_s:
            raise AutoprofError(f"attach: {_named(asked)}: fewer than three steps in {wait_s:g} s")
        time.sleep(POLL_S)
    first = asked[0].replies("step")
    step_s = (first[-1]["at_ns"] - first[0]["at_ns"]) / 1e9 / (len(first) - 1)
    ahead = max(2, int(AHEAD_S / max(step_s, 1e-6)))
    for one in asked:
        last = one.replies("step")[-1]
        nearest = min(first, key=lambda step: abs(step["at_ns"] - last["at_ns"]))
        start = first[-1]["number"] + ahead + last["number"] - nearest["number"]
        write_whole(one.exchange / START, str(start))


def _follow(asked: Sequence[Asked]) -> None:
    """Print the texts of the sessions until all of them are closed."""
    while True:
        over = all(one.replies("closed") or not one.process.is_alive for one in asked)
        for one in asked:
            text = one.new_text()
            print(in_encoding(text, getattr(sys.stdout, "encoding", None) or "ascii"), end="", flush=True)
        if over:
            return
        time.sleep(POLL_S)


def _named(asked: Sequence[Asked]) -> str:
    pids = [str(one.process.pid) for one in asked]
    return f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} ranks, processes {', '.join(pids)}"
