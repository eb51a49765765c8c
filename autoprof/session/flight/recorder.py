"""The thread of the flight recorder: it writes the state of the training thread, and reports hangs and requests.

It wakes once a second. It calls no function of the device and no collective. A forked process has no such thread. Where
the training thread runs C code that never releases the GIL, this thread cannot run: the file has the state before it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, Final

from ...base.failures import contain, describe
from ...base.process.ranks import world_size
from ...base.storage.atomic import write_atomic
from ...base.units import NS_PER_S
from ...capture.recorder import Recorder
from ...probes.stacks import is_blocked
from .ranks import HANG_REPORT, RankLine, describe_ranks, rank_lines
from .ring import FILE, FlightFile, State, StepRing
from .stack import Activity, read_activity
from .watch import Hang, StepWatch

REQUEST: Final = "capture.request"
"""The name of the file that asks for a deep capture, in the folder of a rank."""
MAX_CAPTURES: Final = 3
"""The most captures of a run on each rank; a forgotten script may ask for more."""

if TYPE_CHECKING:
    from ...base.storage.runs import RunFolder
    from ...config import FlightOptions


class FlightRecorder:
    """Write the state of one rank's training thread until ``close``."""

    def __init__(
        self,
        run: RunFolder,
        recorder: Recorder,
        names: Mapping[int, str],
        warn: Callable[[str], None],
        *,
        hang_s: float,
    ) -> None:
        self.ring = StepRing(perf_counter_ns())
        self._recorder = recorder
        self._requested = False
        self._captures_left = MAX_CAPTURES
        self._run_folder = run.path
        self._rank = run.rank
        self._world_size = world_size()
        self._names = names
        self._warn = warn
        self._folder = run.rank_path
        self._file = FlightFile(self._folder / FILE)
        self.watch = StepWatch(self.ring, self._look, hang_s=hang_s)
        self._hangs = 0
        self._compare_at_ns: int | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autoprof flight recorder", daemon=True)
        self._process = os.getpid()

    @classmethod
    def open(
        cls,
        wanted: FlightOptions,
        run: RunFolder,
        recorder: Recorder,
        *,
        names: Mapping[int, str],
        warn: Callable[[str], None],
    ) -> FlightRecorder | None:
        """Return the flight recorder of a run, not started; None where it is off, or its file cannot be written."""
        if wanted.mode == "off" or (wanted.mode == "auto" and world_size() == 1):
            return None
        flight = cls(run, recorder, names, warn, hang_s=wanted.hang_s)
        try:
            flight.write_state({})
        except OSError as error:
            warn(f"the flight recorder is off: {FILE} cannot be written ({error.strerror})")
            return None
        return flight

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, and write that the session is closed."""
        if self._process != os.getpid():  # a fork has no such thread
            return
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self.ring.state = State.CLOSED
        with suppress(OSError):
            self.write_state({})

    # On the training thread.

    def end_step(self, now_ns: int) -> bool:
        """Add a step that ends now; return whether a capture is to begin with the next one."""
        self.ring.end_step(now_ns)
        return self._requested

    def take_request(self) -> bool:
        """Return whether a capture was asked for, once."""
        requested, self._requested = self._requested, False
        self._captures_left -= requested
        return requested

    # On the thread.

    def _run(self) -> None:
        while not self._stopping.is_set():
            with contain(self._note_failure):
                self.poll()
            # The time between two looks at a training: each takes half a millisecond where caches are cold.
            self._stopping.wait(1.0)

    def _note_failure(self, error: Exception) -> None:
        self._stopping.set()
        self._warn(f"the flight recorder is off after {describe(error)}; its file stays as it is")

    def poll(self) -> None:
        """Look at the training; write its state, take requests, report a hang."""
        now_ns = perf_counter_ns()
        look, hang = self.watch.poll(now_ns)
        text = {**look.activity._asdict(), "waits": look.waits}
        del text["signature"]
        self.write_state(text)
        self._look_for_request()
        if hang is not None and self._hangs < 5:
            self._hangs += 1
            self._report_hang(hang)
        if self._compare_at_ns is not None and now_ns >= self._compare_at_ns:
            self._compare_at_ns = None
            self._report_ranks()

    def _look_for_request(self) -> None:
        path = self._folder / REQUEST
        if path.exists():
            with suppress(OSError):
                path.unlink()
            self._requested = self._captures_left > 0

    def _look(self) -> tuple[Activity, bool]:
        """Return the work of the training thread, and whether it waits for another rank."""
        activity = self._activity()
        waits = activity.collective is not None
        if activity.in_engine and self._world_size > 1:
            # DDP waits inside the autograd engine. A thread that waits for the GIL gets it between two looks.
            waits = self._is_blocked() and activity.signature == self._activity().signature
        return activity, waits

    def _is_blocked(self) -> bool:
        # Looks, a millisecond apart, at a thread that may wait for the GIL only.
        for _ in range(3):
            if not is_blocked(self._recorder.native_id):
                return False
            sleep(0.001)
        return True

    def _activity(self) -> Activity:
        return read_activity(sys._current_frames().get(self._recorder.thread), self._names)

    def write_state(self, text: Mapping[str, Any]) -> None:
        """Replace the file. Raises ``OSError``."""
        self._file.write(self.ring, perf_counter_ns(), self.watch.usual_ns, text)

    # Hangs.

    def _report_hang(self, hang: Hang) -> None:
        """Write the state of this rank's threads; on rank 0 the states of all ranks follow."""
        write_atomic(self._folder / HANG_REPORT, "\n".join(self._hang_lines(hang)) + "\n")
        if self._rank == 0:
            # The time that the other ranks have to find a hang too, before rank 0 reads their files.
            self._compare_at_ns = hang.look.at_ns + (3 * NS_PER_S if self._world_size > 1 else 0)

    def _hang_lines(self, hang: Hang) -> list[str]:
        activity = hang.look.activity
        lines = [f"rank {self._rank}: {hang}", "", "The training thread, innermost line first:", *activity.stack]
        for thread, frame in sys._current_frames().items():
            if thread not in (self._recorder.thread, threading.get_ident()):
                lines += ["", f"Thread {thread}:", *read_activity(frame, {}).stack]
        return lines

    def _report_ranks(self) -> None:
        """Report a hang once for all ranks."""
        hang = self.watch.hang
        lines: list[RankLine] = rank_lines(self._run_folder, self._world_size)
        if hang is None:  # it has ended meanwhile
            return
        verdict, table = describe_ranks(lines)
        write_atomic(self._run_folder / HANG_REPORT, "\n".join([str(hang), "", *table]) + "\n")
        self._warn(f"{hang}: {verdict}; {self._run_folder / HANG_REPORT} has the state of every rank")
