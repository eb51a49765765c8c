"""Random frames: every field that a frame can have, times that nest, lanes that overlap, readings that are missing."""

import numpy as np
from hypothesis import strategies as st

from autoprof.base.frame import LOGGED_LANE, STREAM_LANES, UNTIMED_LANE, Layout, Phase, StepFrame

SPAN_PHASES = [phase for phase in Phase if phase is not Phase.OTHER]
NAMES = ["VRT", "VRT/Stage8", "Spike时间自注意力", 'a "quoted", name', "x;y\\z", "(backward)"]


def layouts() -> st.SearchStrategy[Layout]:
    """Layouts of up to eight spans on several lanes; a span and its parent share a lane."""

    def build(rows: list[tuple[str, str | None, Phase, int, int, int]]) -> Layout:
        lanes: list[int] = []
        parents: list[int] = []
        for i, (_, _, _, parent, lane, _) in enumerate(rows):
            parent = min(parent, i - 1)
            if parent >= 0 and lanes[parent] < 0:
                parent = -1
            parents.append(parent)
            lanes.append(lanes[parent] if parent >= 0 else lane)
        names, fqns, phases, _, _, calls = zip(*rows, strict=True) if rows else ((),) * 6
        return Layout(tuple(names), tuple(fqns), tuple(phases), tuple(parents), tuple(calls), tuple(lanes))

    row = st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from([None, "stage8", "a.b"]),
        st.sampled_from(SPAN_PHASES),
        st.integers(-1, 7),
        st.sampled_from([0, 0, 0, 0, 1, LOGGED_LANE, UNTIMED_LANE, STREAM_LANES, STREAM_LANES + 1]),
        st.sampled_from([1, 1, 0]),
    )
    return st.lists(row, max_size=8).map(build)


def _columns(draw: st.DrawFn, layout: Layout, duration: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths: inside the parent one after the other, or (``LOGGED_LANE``) anywhere."""
    count = len(layout)
    starts, lengths = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    free: dict[object, int] = {}
    for i, (parent, lane) in enumerate(zip(layout.parents, layout.lanes, strict=True)):
        if lane == LOGGED_LANE:
            lengths[i] = draw(st.integers(0, 10**12))
            starts[i] = draw(st.integers(0, duration)) - lengths[i]
            continue
        low, high = (0, duration) if parent < 0 else (int(starts[parent]), int(starts[parent] + lengths[parent]))
        place = ("root", lane) if parent < 0 else parent
        start = draw(st.integers(min(free.get(place, low), high), high))
        end = draw(st.integers(start, high))
        starts[i], lengths[i], free[place] = start, end - start, end
    return starts, lengths


def _bytes(draw: st.DrawFn, count: int) -> np.ndarray:
    return np.array(draw(st.lists(st.integers(-1, 2**50), min_size=count, max_size=count)), dtype=np.int64)


@st.composite
def frames_of(draw: st.DrawFn, layout: Layout, step: int, start_unix_ns: int) -> StepFrame:
    """One frame of this layout."""
    duration = draw(st.integers(0, 10**10))
    starts, lengths = _columns(draw, layout, duration)
    columns: dict[str, object] = {}
    if draw(st.booleans()):
        device_duration = draw(st.none() | st.integers(0, 10**10))
        device_starts, device_lengths = _columns(draw, layout, device_duration or duration)
        unseen = np.array([lane == UNTIMED_LANE for lane in layout.lanes], dtype=bool)
        logged = np.array([lane == LOGGED_LANE for lane in layout.lanes], dtype=bool)
        side = np.array([lane >= STREAM_LANES for lane in layout.lanes], dtype=bool)
        device_starts = device_starts + side * draw(st.integers(-(10**6), 10**6))
        columns = {
            "device_duration_ns": device_duration,
            "device_start_ns": np.where(unseen, -1, device_starts),
            "device_ns": np.where(unseen, -1, np.where(logged, lengths, device_lengths)),
            "host_bound_ns": np.where(unseen | logged, -1, device_lengths // 2),
        }
    if draw(st.booleans()):
        columns |= {
            "memory_start_bytes": _bytes(draw, len(layout)),
            "memory_end_bytes": _bytes(draw, len(layout)),
        }
    return StepFrame(
        step=step,
        start_unix_ns=start_unix_ns,
        duration_ns=duration,
        layout=layout,
        start_ns=starts,
        host_ns=lengths,
        scalars=draw(st.dictionaries(st.sampled_from(["loss", "samples", "step", "gpu 利用率", "a,b"]), st.floats())),
        memory=draw(st.dictionaries(st.sampled_from(["rss_bytes", "peak_bytes"]), st.integers(0, 2**50))),
        overhead_ns=draw(st.integers(0, 10**7)),
        dropped=draw(st.integers(0, 3)),
        warmup=step <= 1,
        **columns,  # type: ignore[arg-type]
    )


@st.composite
def runs(draw: st.DrawFn, max_steps: int = 5) -> list[StepFrame]:
    """The frames of a run: a few layouts, steps that follow one another, a wall clock that is sometimes set back."""
    known = draw(st.lists(layouts(), min_size=1, max_size=2))
    frames: list[StepFrame] = []
    now = draw(st.integers(10**18, 2 * 10**18))
    for step in range(1, draw(st.integers(1, max_steps)) + 1):
        frame = draw(frames_of(draw(st.sampled_from(known)), step, now))
        frames.append(frame)
        now += frame.duration_ns + draw(st.sampled_from([0, 500, 10**9, -(10**10)]))
    return frames


def same(a: StepFrame, b: StepFrame) -> bool:
    """Say whether two frames are equal field by field, NaN being equal to itself."""
    for name in StepFrame.__dataclass_fields__:
        one, other = getattr(a, name), getattr(b, name)
        if name == "layout":
            if any(getattr(one, field) != getattr(other, field) for field in Layout.__dataclass_fields__):
                return False
        elif isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
            if one is None or other is None or one.dtype != other.dtype or one.tolist() != other.tolist():
                return False
        elif name == "scalars":
            if {key: repr(float(value)) for key, value in one.items()} != {
                key: repr(float(value)) for key, value in other.items()
            }:
                return False
        elif one != other:
            return False
    return True
