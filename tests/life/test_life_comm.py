"""Communication on two real processes: the collectives that a program calls, and the end of DDP's backward."""

from typing import Any

import comm_workers
import pytest
from gloo_ranks import train_ranks


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    """Train on two processes over gloo, once for all tests; return what each rank found."""
    return train_ranks(comm_workers.rank_main, tmp_path_factory.mktemp("ranks"))


def test_collectives_and_waits_are_comm_spans(ranks: list[dict[Any, Any]]) -> None:
    """Called by the package's name or by one bound before; a wait inside a collective is no second span."""
    for found in ranks:
        names = [name for name, _ in found["explicit"]]
        assert names == ["Comm/all_reduce"] * 6 + ["Comm/wait"] * 4 + ["Comm/barrier", "Comm/broadcast"]
        assert all(parent is None for _, parent in found["explicit"])


def test_the_end_of_ddps_backward_is_comm_and_no_sync_has_none(ranks: list[dict[Any, Any]]) -> None:
    """Two backward passes, one of which waits for the reducer; the span lies in that pass, in no module."""
    for found in ranks:
        spans = [span for span in found["ddp"] if span[0] == "Comm/DDP"]
        assert spans == [("Comm/DDP", ("(backward)", "backward"))]
