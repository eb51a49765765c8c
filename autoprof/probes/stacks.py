"""Sample the training thread's stack on a thread of our own, to name the lines where time outside all spans goes.

Nothing is sampled until ``enable`` is called (a part of the step is unexplained) or a stretch is excluded. The thread
then wakes in recorded steps and excluded stretches only, at random intervals that keep its cost under
``BUDGET_SHARE`` of the budget, and blocks otherwise. It calls no function of the device, so a CUDA graph may be
captured meanwhile; a forked process has no such thread. A sample holds the GIL for about 20 µs, and keeps no frame.

With the extension in C, and where the training thread is the main one, that thread waits without the GIL and has the
main thread sample its own stack (``StackTimer``): busy Python gives up the GIL only where it waits for something, so a
sampling thread that needs the GIL sees those places. Where the main thread runs a function in C that holds no GIL, the
sampling thread looks at the stack itself.
"""

from __future__ import annotations

import opcode
import os
import random
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable, Mapping
from time import perf_counter_ns, thread_time_ns
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from .._capture.marks.native import extension, uses_extension
from .._capture.recorder import Recorder
from .._units import NS_PER_S
from ..devices import DeviceClock
from ._base import ProbeContext, ProbeFactory
from ._call_table import MAX_FRAMES, Site, file_owner, is_own

INTERVAL_NS: Final = 8_000_000
"""The least mean time between two samples: 100 samples in 0.8 s are enough to name a line."""
MAX_INTERVAL_NS: Final = 1_000_000_000
"""The longest mean time between two samples, where they cost much."""
WAKE_EVERY_NS: Final = 20 * INTERVAL_NS
"""The least time between two wakes of the thread for excluded stretches that are shorter than the interval."""
BUDGET_SHARE: Final = 0.2
"""The part of the budget that samples may take."""
DEFAULT_BUDGET: Final = 0.01
"""The budget of samples where the session has none."""
FIRST: Final = 64
"""Samples before the budget limits their number: some 5 ms in all, in which a short run gets its lines."""
ENOUGH: Final = 1000
"""Samples after which the interval is ten times as long: the lines are known then."""
LATER: Final = 10
PROMPT_NS: Final = 300_000
"""The wait for the GIL up to which a sample shows the moment that it was due."""
MAX_USER_LINES: Final = 12
"""The user's lines kept of a sample, the innermost ones."""
MAX_SAMPLES: Final = 1024
"""Samples kept between two ends of steps; further ones are dropped."""
ROUNDS: Final = 16
"""Samples by the main thread until the sampling thread adapts the interval."""
RESUME: Final = opcode.opmap.get("RESUME")
"""The instruction at which a function begins or goes on after a ``yield``, from Python 3.11 on."""


class StackSample(NamedTuple):
    """The training thread at one moment: the user's lines, innermost first, and the innermost line outside torch.

    ``weight_ns`` is the time that the sample stands for. ``blocked``: it certainly waited for something that is neither
    a processor nor the GIL, such as a file, a lock or the end of a sleep.
    """

    at_ns: int
    weight_ns: int
    excluded: bool
    users: tuple[Site, ...]
    inner: Site | None
    blocked: bool = False


Sites = tuple[tuple[Site, ...], Site | None]


class SampledFrame(NamedTuple):
    """A frame as it was when sampled, with the attributes of a frame."""

    f_code: CodeType
    f_lineno: int | None
    f_lasti: int
    f_back: SampledFrame | None


AnyFrame = FrameType | SampledFrame


class StackProbe:
    """Sample one session's training thread in its recorded steps and excluded stretches. A ``Probe``.

    ``budget`` is the session's; 0 samples nothing. ``frames`` returns the frame of each thread.
    """

    def __init__(
        self,
        recorder: Recorder,
        budget: float | None = None,
        frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames,
    ) -> None:
        self.samples: list[StackSample] = []
        """The samples since the last ``take``."""
        self.total_ns = 0
        """Time that samples have taken, with the GIL held."""
        self.enabled = False
        """Whether recorded steps are sampled."""
        self._recorder = recorder
        self._budget = DEFAULT_BUDGET if budget is None else budget
        self._frames = frames
        self._now: Callable[[], int] = recorder.clock.read
        offered = getattr(extension, "StackTimer", None) if self._budget > 0 and uses_extension() else None
        self._timer: Any = None if offered is None else offered(MAX_SAMPLES, MAX_FRAMES)
        self._use_clock()
        recorder.on_change(self._use_clock)
        self._in_step = self._excluded = self._stopping = False
        self._was_long = False
        self._excluded_ns = self._next_wake_ns = 0
        self._count = 0
        self._charged_ns = self._read_ns = 0
        self._random = random.Random(0)
        self._wake = threading.Lock()
        self._wake.acquire()
        self._idle = False
        self._thread: int | None = None
        self._training_thread = 0
        """The native id of the training thread."""
        self._ended = threading.Lock()
        """Held from the thread's start to its end."""
        self._process = os.getpid()

    def _use_clock(self) -> None:
        clock = self._recorder.clock
        self._now = clock.now if isinstance(clock, DeviceClock) else clock.read
        if self._now is not perf_counter_ns:  # the timer reads no other clock
            self._drop_timer()

    @property
    def spent_ns(self) -> int:
        """Time spent on samples since it was last set to 0."""
        self._read_ns = self.total_ns
        return self._read_ns - self._charged_ns

    @spent_ns.setter
    def spent_ns(self, _zero: int) -> None:
        self._charged_ns = self._read_ns  # a sample between the two calls is charged later

    # Called on the training thread.

    def enable(self) -> None:
        """Sample recorded steps from now on."""
        if not self.enabled:
            self.enabled = self._budget > 0
            self._update()

    def attach(self) -> None:
        """Sample while the step is recorded, if that is enabled."""
        self._in_step = True
        self._training_thread = threading.get_native_id()
        self._update()

    def detach(self) -> None:
        """Sample no more in steps."""
        self._in_step = False
        if self._timer is not None:
            self._timer.active = self._wanted()

    def exclude(self, on: bool) -> None:
        """Called at the begin and the end of a stretch that belongs to no step; not each short one wakes the thread."""
        now_ns = perf_counter_ns()
        self._excluded = on and self._budget > 0
        if self._timer is not None:
            self._timer.excluded = self._excluded
            self._timer.active = self._timer.active and self._wanted()
        if not on:
            self._was_long = now_ns - self._excluded_ns >= INTERVAL_NS
            return
        self._excluded_ns = now_ns
        if self._was_long or now_ns >= self._next_wake_ns:
            self._next_wake_ns = now_ns + WAKE_EVERY_NS
            self._update()

    def remove(self) -> None:
        """Stop the thread."""
        self._in_step = self._excluded = self.enabled = False
        self._stopping = True
        self._drop_timer()
        self._release()
        thread, self._thread = self._thread, None
        alive = thread is not None and self._process == os.getpid() and thread != threading.get_ident()
        if alive and self._ended.acquire(timeout=1.0):
            self._ended.release()

    def take(self) -> list[StackSample]:
        """Return the samples since the last call."""
        if self._timer is not None and self._thread is not None:
            try:
                self._read_timer(self._timer)
            except Exception:
                self._recorder.count_failure("samples of the stack")
                self._drop_timer()
        if not self.samples:
            return []
        samples, self.samples = self.samples, []
        return samples

    def _wanted(self) -> bool:
        return self._excluded or (self._in_step and self.enabled)

    def _update(self) -> None:
        if not self._wanted() or self._stopping:
            return
        if self._timer is not None:
            if self._recorder.thread == threading.main_thread().ident:
                self._timer.active = True
            else:
                self._drop_timer()
        if self._thread is None:
            # Not threading.Thread: its start waits for the new thread, which may take milliseconds of the step.
            self._ended.acquire()
            self._thread = start_new_thread(self._run, ())
        elif self._idle:
            self._release()

    def _drop_timer(self) -> None:
        """Sample no more by the main thread; the sampling thread goes on without it."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.close()

    def _read_timer(self, timer: Any) -> None:
        """Add the samples of the main thread, and their cost."""
        taken, count, ns = timer.take()
        if not count:
            return
        begun_ns = thread_time_ns()
        for at_ns, weight_ns, excluded, blocked, instruction, frames in taken:
            users, inner = sites_of(caller_at_entry(frames_of(instruction, frames)))
            if len(self.samples) < MAX_SAMPLES and inner:
                self.samples.append(StackSample(at_ns, weight_ns, excluded, users, inner, blocked))
        self._count += count
        self.total_ns += ns + thread_time_ns() - begun_ns

    def _release(self) -> None:
        """Wake the thread. A lock without an owner: nothing waits for it where a fork has no such thread."""
        if self._wake.locked():
            self._wake.release()

    # On the sampling thread.

    def _run(self) -> None:
        try:
            while not self._stopping:
                timer = self._timer
                if timer is None:
                    self._look_or_wait()
                else:
                    self._look_where_late(timer)
        except Exception:
            self._recorder.count_failure("samples of the stack")
        finally:
            self._ended.release()

    def _look_or_wait(self) -> None:
        """Take a sample after a random time; wait where none is wanted."""
        self._idle = True
        if not self._wanted():
            self._wake.acquire()
            return
        self._idle = False
        mean_ns = self.interval_ns()
        wait_ns = round(mean_ns * self._random.uniform(0.5, 1.5))
        due_ns = perf_counter_ns() + wait_ns
        if self._wake.acquire(timeout=wait_ns / NS_PER_S):
            return
        begun_ns = thread_time_ns()  # the cost of a sample is no longer while another process has the processor
        late_ns = max(perf_counter_ns() - due_ns, 0)
        if self._wanted() and shows_its_moment(late_ns):
            self.sample(mean_ns + late_ns)
        self.total_ns += thread_time_ns() - begun_ns
        self._count += 1

    def _look_where_late(self, timer: Any) -> None:
        """Let the main thread take samples; take one here where it runs a function in C that holds no GIL."""
        if not timer.wait(self.interval_ns(), ROUNDS):
            return
        begun_ns = thread_time_ns()
        if self._wanted():
            blocked = timer.blocked = is_blocked(self._training_thread)
            weight_ns = timer.cancel(PROMPT_NS)
            if weight_ns is not None:
                self.sample(weight_ns, blocked)
                self._count += 1
        self.total_ns += thread_time_ns() - begun_ns

    def interval_ns(self) -> int:
        """Return the mean time between samples that the budget allows."""
        if self._count < FIRST:
            return INTERVAL_NS
        each_ns = self.total_ns / self._count
        allowed_ns = each_ns / max(BUDGET_SHARE * self._budget, 1e-9)
        least_ns = INTERVAL_NS * (LATER if self._count >= ENOUGH else 1)
        return round(min(max(allowed_ns, least_ns), MAX_INTERVAL_NS))

    def sample(self, weight_ns: int, blocked: bool = False) -> None:
        """Add a sample that stands for this time. A wait for the GIL makes it longer: code that held it was running."""
        excluded, samples = self._excluded, self.samples
        at_ns = self._now()
        users, inner = sites_of(self._frames().get(self._recorder.thread))
        if len(samples) < MAX_SAMPLES and inner:
            samples.append(StackSample(at_ns, weight_ns, excluded, users, inner, blocked))


def is_blocked(native_id: int) -> bool:
    """Return whether a thread of this process neither runs nor waits for a processor (proc_pid_stat(5)).

    Only a thread that runs a function without the GIL can be judged: others may wait for the GIL of the caller.
    """
    try:
        with open(f"/proc/self/task/{native_id}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"S", b"D")
    except (OSError, IndexError):
        return False


def shows_its_moment(late_ns: int) -> bool:
    """Return whether a sample so late shows the code that ran when it was due, or as the interpreter interrupted it.

    A thread that waits for the GIL gets it when the other one waits for something, which is where that code has ended;
    only after the switch interval is the other one interrupted in the middle of its work.
    """
    return late_ns <= PROMPT_NS or late_ns >= 0.95 * sys.getswitchinterval() * NS_PER_S


def frames_of(instruction: int, frames: list[Any]) -> SampledFrame | None:
    """Return the innermost of these frames, given as code objects and lines, and its instruction."""
    frame = None
    for at in range(len(frames) - 2, -1, -2):
        line = frames[at + 1]
        frame = SampledFrame(frames[at], line if line > 0 else None, instruction if at == 0 else -1, frame)
    return frame


def caller_at_entry(frame: SampledFrame | None) -> SampledFrame | None:
    """Return the frame, or its caller where it has just begun or goes on: the time before was the caller's."""
    if frame is None or (frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] != RESUME):
        return frame
    return frame.f_back


def sites_of(frame: AnyFrame | None) -> Sites:
    """Return the lines of the user's files, and the innermost line outside torch and the standard library.

    ``call`` is the function that a line was calling, as far as it is written in Python. Nothing is returned for
    autoprof's own work.
    """
    users: list[Site] = []
    call, inner, own = "", None, frame is not None and is_own(frame.f_code.co_filename)
    for _ in range(0 if own else MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        file = code.co_filename
        if not is_own(file):
            owner = file_owner(file)
            if owner == "user" or (owner == "library" and inner is None):
                site = Site(file, frame.f_lineno or _last_line(frame), code.co_name, call)
                inner = inner or site
                if owner == "user":
                    users.append(site)
                    if len(users) == MAX_USER_LINES:
                        break
            call = code.co_name
        frame = frame.f_back
    return tuple(users), inner


def _last_line(frame: AnyFrame) -> int:
    """Return the line before the instruction of a frame that is at none, as the jump at the end of a loop's body."""
    code, last = frame.f_code, frame.f_lasti
    lines = [line for start, _end, line in code.co_lines() if start <= last and line is not None]
    return lines[-1] if lines else code.co_firstlineno


def _make(context: ProbeContext) -> StackProbe:
    return StackProbe(context.recorder, context.settings.sample.budget if context.real_time else 0.0)


PROBE = ProbeFactory(_make)
