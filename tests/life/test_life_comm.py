"""Communication on two real processes: the collectives that a program calls, and the end of DDP's backward."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from gloo_ranks import train_ranks

sys.path.insert(0, str(Path(__file__).parent))  # spawned processes import what they run by its name
import comm_workers


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    """Train on two processes over gloo, once for all tests; return what each rank found."""
    return train_ranks(comm_workers.rank_main, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["explicit", "ddp"])
def test_communication_gives_the_same_bits_on_every_rank(ranks: list[dict[Any, Any]], kind: str, when: str) -> None:
    """Averaged gradients of three steps, and what a broadcast brought."""
    for found in ranks:
        expected, bits = found[kind, "never"]["bits"], found[kind, when]["bits"]
        assert len(bits) == len(expected) > 3
        for one, other in zip(bits, expected, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes()
        assert found[kind, when]["skipped"] == {}
        assert found[kind, when]["adds_up"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_collectives_and_waits_are_comm_spans(ranks: list[dict[Any, Any]], when: str) -> None:
    """Called by the package's name or by one bound before; a wait inside a collective is no second span."""
    for found in ranks:
        spans = found["explicit", when]["spans"]
        names = [name for name, _, _ in spans]
        assert names == ["Comm/all_reduce"] * 6 + ["Comm/wait"] * 4 + ["Comm/barrier", "Comm/broadcast"]
        assert all(parent is None for _, parent, _ in spans)


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_end_of_ddps_backward_is_comm_and_no_sync_has_none(ranks: list[dict[Any, Any]], when: str) -> None:
    """Two backward passes, one of which waits for the reducer; the span lies in that pass, in no module."""
    for found in ranks:
        spans = [(name, parent) for name, parent, _ in found["ddp", when]["spans"] if name == "Comm/DDP"]
        assert spans == [("Comm/DDP", ("(backward)", "backward"))]


def test_afterwards_torch_distributed_is_its_own_again(ranks: list[dict[Any, Any]]) -> None:
    """The functions inside, and ``Work.wait``."""
    assert not any(found["left"] for found in ranks)
