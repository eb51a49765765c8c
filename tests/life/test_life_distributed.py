"""Wrapped for many processes or devices, before instrumenting and after: same bits, and the names of the bare model."""

from typing import Any

import life_workers
import pytest
import torch
from gloo_ranks import train_ranks

NAMES = {"Sequential", "0", "1", "2", "2/0", "2/1", "3"}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    """Train on two real processes over gloo, once for all tests; return what each rank found."""
    return train_ranks(life_workers.rank_main, tmp_path_factory.mktemp("ranks"), tuple(life_workers.WRAPPERS))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", life_workers.WRAPPERS)
def test_gradients_are_the_same_to_the_last_bit_on_every_rank(
    ranks: list[dict[Any, Any]], kind: str, when: str
) -> None:
    """DDP, FSDP2 (``fully_shard``) and FSDP1 on two processes: outputs and gradients of three steps."""
    for found in ranks:
        expected, bits = found[kind, "never"]["bits"], found[kind, when]["bits"]
        assert len(bits) == len(expected) > 3
        for one, other in zip(bits, expected, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes()
    assert not torch.equal(ranks[0][kind, "never"]["bits"][0], ranks[1][kind, "never"]["bits"][0])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", life_workers.WRAPPERS)
def test_a_wrapped_model_keeps_its_names_and_all_its_spans(ranks: list[dict[Any, Any]], kind: str, when: str) -> None:
    """No ``module/`` and no ``_fsdp_wrapped_module/``; each module once a step, forward and backward."""
    for found in ranks:
        calls = found[kind, when]["calls"]
        assert {name for name, phase in calls if phase == "forward"} == NAMES
        assert {calls[name, phase] for name in NAMES for phase in ("forward", "backward")} == {3}
        assert found[kind, when]["skipped"] == {}
