"""The slowest of the modules that share a row: named by its typical step, compared with equals only."""

import pytest

from autoprof import Phase, Span, Summary
from autoprof.base.stats import Aggregate
from autoprof.base.summary import SlowestMember
from autoprof.testing import make_frame

MS = 1_000_000
STEPS = 20


def a_summary(*lengths_ms: float, spike_ms: float = 0.0, calls: tuple[int, ...] = ()) -> Summary:
    """Record blocks of these lengths in one row; the second block takes ``spike_ms`` more in one step."""
    aggregate = Aggregate()
    for step in range(STEPS):
        start, spans = 0, []
        for number, ms in enumerate(lengths_ms):
            ns = round((ms + (spike_ms if number == 1 and step == 7 else 0.0)) * MS)
            block = Span("h.*", f"h.{number}", Phase.FORWARD, None, start, ns, calls=calls[number] if calls else 1)
            spans.append(block)
            start += ns
        aggregate.add(make_frame(spans, step=step))
    return aggregate.summary()


def test_the_slowest_block_is_named_with_its_excess_over_the_median() -> None:
    """Times are those of a typical step; the excess is what the step would be shorter by."""
    (row,) = a_summary(2, 2, 10, 2, 3).rows
    assert row.slowest == SlowestMember("h.2", members=5, times=pytest.approx(5.0, rel=0.01), excess_ns=8 * MS)


def test_one_long_call_does_not_make_a_block_slow() -> None:
    """A call that takes half a second in one of 20 steps is no property of the block."""
    (row,) = a_summary(2, 2, 2, 2, spike_ms=500).rows
    assert row.slowest is not None
    assert row.slowest.times < 1.5


@pytest.mark.parametrize(("lengths", "calls"), [((2, 9), (1, 1)), ((2, 2, 2, 9), (1, 1, 1, 4))])
def test_blocks_without_equals_are_not_compared(lengths: tuple[float, ...], calls: tuple[int, ...]) -> None:
    """Of two blocks neither is the usual one, and one that is called more often does more work."""
    (row,) = a_summary(*lengths, calls=calls).rows
    assert row.slowest is None


def test_the_slowest_block_survives_the_summarys_file() -> None:
    """What is written as JSON is read back."""
    summary = a_summary(1, 1, 4)
    assert Summary.from_dict(summary.to_dict()).rows == summary.rows
