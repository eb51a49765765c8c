"""The cost on several ranks: of all blocks together, with the thread of the exchange."""

import pytest

from benchmarks.ranks import describe_run, page, total_ratio


def test_a_burst_that_is_in_few_blocks_counts() -> None:
    """The median block has no cost; one in ten costs a tenth."""
    recorded = [1.1 if at % 10 == 0 else 1.0 for at in range(200)]
    found = total_ratio(recorded, [1.0] * 200)
    assert found.value == pytest.approx(1.01)
    assert found.low < 1.01 < found.high


def test_the_thread_is_part_of_the_cost() -> None:
    """It works in bare blocks as well, where the difference does not show it. The rank that pays most counts."""
    rank = {
        "blocks": {"bare": [2.0] * 50, "recorded": [2.01] * 50},
        "thread_share": 0.001,
        "overhead": 0.004,
        "recorded_steps": 10,
        "unsampled_steps": 990,
    }
    found = describe_run([{**rank, "thread_share": 0.0}, rank])
    assert found["cost"] == pytest.approx(0.006)
    assert found["median_block"] == pytest.approx(0.005)
    assert "| 2 | 100.0 ms | 0.60 % [0.60, 0.60] |" in "\n".join(page({2: found}, 20))
