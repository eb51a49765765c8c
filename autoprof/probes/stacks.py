"""Sample the training thread's stack on a thread of our own, to name the lines where time outside all spans goes.

Nothing is sampled until ``enable`` is called (the warm-up is over) or a stretch is excluded. The thread then wakes in
recorded steps and excluded stretches only, at random intervals that keep its cost within its part of the budget, and
blocks otherwise. It calls no function of the device, so a CUDA graph may be captured meanwhile; a forked process has no
such thread. A sample costs the program about 0.1 ms, and keeps no frame.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable, Mapping
from time import perf_counter_ns, sleep
from types import CodeType, FrameType
from typing import Final, NamedTuple

from ..base.allowance import Allowance
from ..base.units import NS_PER_S
from ..capture.marks.native import require_extension
from ..capture.recorder import Recorder
from ._base import ProbeContext, ProbeFactory
from ._call_table import MAX_FRAMES, Site, file_owner

INTERVAL_NS: Final = 4_000_000
"""The least mean time between two samples: 100 samples in 0.4 s are enough to name a line."""
LONGEST_SAMPLE_NS: Final = 500_000
"""The longest time of a sample that counts: one in which Python collects garbage takes as long as hundreds of others,
and a short run would have no second one."""
MAX_INTERVAL_NS: Final = NS_PER_S
"""The largest mean time between two samples, where they cost much."""
WRAPPERS: Final = {"_wrapped_call_impl", "_call_impl", "decorate_context", "wrapper", "inner", "_fn", "_use_grad"}
"""Functions of torch and Python around one of the program, which a line calls for it."""
FETCHING: Final = (
    os.path.join("torch", "utils", "data", "sampler.py"),
    os.path.join("_utils", "collate.py"),
    os.path.join("_utils", "fetch.py"),
)
"""The ends of the paths of torch's code that makes a batch in the main process."""
NEXT_INDEX: Final = (os.path.join("torch", "utils", "data", "dataloader.py"), "_next_index")
"""The end of the path and the name of torch's function that asks the sampler, torch's or the program's."""
ENGINE: Final = (os.path.join("torch", "autograd", "graph.py"), "_engine_run_backward")
"""The end of the path and the name of torch's function in which each backward pass runs."""
BACKWARD: Final = "backward"
"""What a line calls that begins a backward pass."""
FORWARD: Final = ("forward", "ctx")
"""The name and the first argument of the forward of a custom function of autograd, as torch documents them; C calls
it."""
OF_FUNCTION: Final = " of an autograd function"
"""The end of a function's name where it runs inside of such a function."""
OF_SAMPLER: Final = " of the sampler"
"""The end of a function's name where a sampler runs it: in the main process, whatever the number of workers is."""
OWN_WORK: Final = os.path.join("autoprof", "session", "pipeline.py"), os.path.join("autoprof", "base", "stats", "")
"""Parts of the paths of the code in which autoprof works between two steps, and calls others, as numpy, itself."""
SOON_S: Final = 1e-6
"""The shortest interval: a waiting thread interrupts running Python after some 60 µs."""


def is_blocked(native_id: int) -> bool:
    """Return whether a thread of this process neither runs nor waits for a processor (proc_pid_stat(5)).

    The file is read without the GIL. So a thread that waits for the GIL runs meanwhile, unless a third one has it.
    """
    try:
        with open(f"/proc/self/task/{native_id}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"S", b"D")
    except (OSError, IndexError):
        return False


class StackSample(NamedTuple):
    """The training thread at one moment: the user's lines, innermost first, and the innermost line outside torch.

    ``weight_ns`` is the time that the sample stands for. ``blocked`` is whether the thread waits for another one, a
    file, the network or the end of a sleep. It is False where the clock is a device's: the wait may be for the device.
    """

    at_ns: int
    weight_ns: int
    excluded: bool
    users: tuple[Site, ...]
    inner: Site | None
    blocked: bool = False


Sites = tuple[tuple[Site, ...], Site | None]


class StackProbe:
    """Sample one session's training thread in its recorded steps and excluded stretches. A ``Probe``.

    ``allowance`` pays for the samples; None samples nothing. ``frames`` returns the frame of each thread,
    ``blocked`` whether the thread of a native id is blocked.
    """

    def __init__(
        self,
        recorder: Recorder,
        allowance: Allowance | None,
        frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames,
        blocked: Callable[[int], bool] = is_blocked,
    ) -> None:
        self.samples: list[StackSample] = []
        """The samples since the last ``take``."""
        self.enabled = False
        """Whether recorded steps are sampled."""
        self._recorder = recorder
        self._allowance = allowance
        self._frames = frames
        self._blocked = blocked
        self._in_step = self._excluded = self._stopping = False
        self._next_wake_ns = 0
        self._handover_ns = 0
        self._random = random.Random(0)
        self._timer = require_extension().GilTimer()
        self._idle = False
        self._thread: int | None = None
        self._ended = threading.Lock()
        """Held from the thread's start to its end."""
        self._process = os.getpid()

    # Called on the training thread.

    def enable(self) -> None:
        """Sample recorded steps from now on."""
        if not self.enabled:
            self.enabled = self._allowance is not None
            self._update()

    def attach(self) -> None:
        """Sample while the step is recorded, if that is enabled."""
        self._in_step = True
        self._update()

    def detach(self) -> None:
        self._in_step = False

    def exclude(self, on: bool) -> None:
        """Called at the begin and the end of a stretch that belongs to no step; short ones rarely wake the thread."""
        self._excluded = on and self._allowance is not None
        now_ns = perf_counter_ns() if on else 0
        if on and now_ns >= self._next_wake_ns:
            self._next_wake_ns = now_ns + INTERVAL_NS
            self._update()

    def remove(self) -> None:
        self._in_step = self._excluded = self.enabled = False
        self._stopping = True
        self._timer.wake()
        thread, self._thread = self._thread, None
        alive = thread is not None and self._process == os.getpid() and thread != threading.get_ident()
        if alive and self._ended.acquire(timeout=1.0):
            self._ended.release()

    def take(self) -> list[StackSample]:
        samples, self.samples = self.samples, []
        return samples

    def _wanted(self) -> bool:
        return self._excluded or (self._in_step and self.enabled)

    def _update(self) -> None:
        if not self._wanted() or self._stopping:
            return
        if self._thread is None:
            # Not threading.Thread: its start waits for the new thread, which may take milliseconds of the step.
            self._ended.acquire()
            usual_s = _switch_soon()
            try:
                self._thread = start_new_thread(self._run, (usual_s,))
            except RuntimeError:  # a limit of the system, or the interpreter ends: there are no samples
                _switch_as(usual_s)
                self._stopping = True
                self._ended.release()
        elif self._idle:
            self._timer.wake()

    # On the sampling thread.

    def _run(self, usual_s: float) -> None:
        _switch_as(usual_s)
        allowance = self._allowance
        try:
            while allowance is not None and not self._stopping:
                self._look_or_wait(allowance)
        except Exception:
            self._recorder.count_failure("samples of the stack")
        finally:
            self._ended.release()

    def _look_or_wait(self, allowance: Allowance) -> None:
        """Take a sample after a random time; wait where none is wanted."""
        self._idle = True
        if not self._wanted():
            self._timer.wait(-1.0)
            return
        self._idle = False
        mean_ns = max(min(allowance.pause_ns(), MAX_INTERVAL_NS), INTERVAL_NS)
        wait_s = mean_ns * self._random.uniform(0.5, 1.5) / NS_PER_S
        last_s = min(self._random.random() * sys.getswitchinterval(), wait_s)
        due_ns = perf_counter_ns() + round(wait_s * NS_PER_S)
        if self._timer.wait(wait_s - last_s):
            return
        # The thread is handed the GIL where another one releases it, mostly behind the code that took the time. So the
        # last part of each wait begins with the GIL, and from then on Python switches threads soon. In a loop that
        # releases it more often than a thread awakes this part ends late; the loop is a tenth slower for so long.
        # Where the GIL came after the whole wait, a call in C has held it, and the thread stands right behind the call.
        usual_s = _switch_soon()
        try:
            left_ns = due_ns - perf_counter_ns()
            if left_ns > 0:
                sleep(left_ns / NS_PER_S)
            late_ns = max(perf_counter_ns() - due_ns, 0)
            begun_ns = allowance.processor_ns()  # waiting for the GIL does not keep the training thread from running
            if self._wanted():
                self.sample(INTERVAL_NS + late_ns)  # a longer wait for the budget says nothing of the program
        finally:
            _switch_as(usual_s)
        handover_ns = self._timer.handover_ns
        took_ns = min(allowance.processor_ns() - begun_ns, LONGEST_SAMPLE_NS)
        allowance.count(took_ns + handover_ns - self._handover_ns)
        self._handover_ns = handover_ns

    def sample(self, weight_ns: int) -> None:
        """Add a sample that stands for this time. A wait for the GIL makes it longer: code that held it was running."""
        at_ns = self._recorder.clock.now()
        users, inner = sites_of(self._frames().get(self._recorder.thread))
        if len(self.samples) < 1024 and inner:
            blocked = not self._recorder.on_device and self._blocked(self._recorder.native_id)
            self.samples.append(StackSample(at_ns, weight_ns, self._excluded, users, inner, blocked))


def _switch_soon() -> float:
    """Have a thread that waits for the GIL get it soon; return the interval so far."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(SOON_S)
    return usual_s


def _switch_as(usual_s: float) -> None:
    """Return to the usual interval, unless the program has set another one meanwhile."""
    if sys.getswitchinterval() == SOON_S:
        sys.setswitchinterval(usual_s)


def sites_of(frame: FrameType | None) -> Sites:
    """Return the lines of the user's files, and the innermost line outside torch and the standard library.

    ``call`` is the function that a line was calling, as far as it is written in Python, and ``BACKWARD`` where a
    backward pass runs inside of it, whatever began it. Where the line is that of a loop over a loader, the innermost
    one is that of torch's sampler or collation. The functions that a sampler
    runs have ``OF_SAMPLER`` behind their names. Nothing is returned for autoprof's own work.
    """
    users: list[Site] = []
    fetching: Site | None = None
    lines: list[tuple[CodeType, int]] = []
    while frame is not None and len(lines) < MAX_FRAMES:  # at once: the thread may go on while owners are looked up
        lines.append((frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno))
        frame = frame.f_back
    call, inner, in_pass = "", None, False
    if lines and file_owner(lines[0][0].co_filename) == "autoprof":
        lines = []
    for code, line in lines:
        file = code.co_filename
        owner = file_owner(file)
        if not users and owner == "autoprof" and any(part in file for part in OWN_WORK):
            return (), None
        part_of_line = code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
        if not part_of_line and owner != "autoprof":
            if owner == "base" and fetching is None and file.endswith(FETCHING):
                fetching = Site(file, line, code.co_name, call)
            if code.co_name == NEXT_INDEX[1] and file.endswith(NEXT_INDEX[0]):
                users = [_inside(user, OF_SAMPLER) for user in users]
                inner, fetching = inner and _inside(inner, OF_SAMPLER), fetching and _inside(fetching, OF_SAMPLER)
            if owner == "user" or (owner == "library" and inner is None):
                site = Site(file, line, code.co_name, call)
                inner = inner or (site if call != "__next__" else fetching or site)
                if owner == "user":
                    users.append(site)
                    in_pass = False
                    if code.co_name == FORWARD[0] and code.co_varnames[:1] == FORWARD[1:]:
                        users = [_inside(user, OF_FUNCTION) for user in users]
                        inner = _inside(inner, OF_FUNCTION)
                    if len(users) == 12:
                        break
            if code.co_name == ENGINE[1] and file.endswith(ENGINE[0]):
                call, in_pass = BACKWARD, True
            elif not in_pass and (owner != "base" or code.co_name not in WRAPPERS):
                call = code.co_name
    return tuple(users), inner


def lines_around() -> set[tuple[str, int]]:
    """Return the file and the number of each of the user's lines that have led to this call."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and file_owner(frame.f_code.co_filename) == "autoprof":
        frame = frame.f_back
    return {user[:2] for user in sites_of(frame)[0]}


def _inside(site: Site, whose: str) -> Site:
    return site if site.function.endswith(whose) else site._replace(function=site.function + whose)


def _make(context: ProbeContext) -> StackProbe:
    file_owner("")  # lists the folders of packages, which takes as long as fifty samples
    return StackProbe(context.recorder, context.lines_allowance if context.real_time else None)


PROBE = ProbeFactory(_make)
