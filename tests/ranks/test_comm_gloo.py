"""Communication of two real ranks: DDP and its hooks, FSDP, tensor parallel, sends between stages."""

from __future__ import annotations

from typing import Any

import comm_training
import pytest
from gloo_ranks import train_ranks

STEPS = comm_training.STEPS


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    """Train on two processes over gloo, once for all tests; return what each rank found."""
    return train_ranks(comm_training.rank_main, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("kind", [*comm_training.MODELS, "pipeline"])
def test_gradients_and_parameters_have_the_same_bits(ranks: list[dict[Any, Any]], kind: str) -> None:
    """With autoprof and without, under every option of DDP and with the user's own communication hooks."""
    for found in ranks:
        expected, bits = found[kind, False]["bits"], found[kind, True]["bits"]
        assert len(bits) == len(expected) >= STEPS
        for one, other in zip(bits, expected, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes()
        assert found[kind, True]["skipped"] == {}


def test_tensor_parallel_layers_wait_in_a_communication_span(ranks: list[dict[Any, Any]]) -> None:
    """Though C++ waits for a functional collective: one of the row-wise layer in each forward."""
    for found in ranks:
        assert found["tp", True]["calls"]["Comm/wait_tensor"] >= STEPS


@pytest.mark.skipif("fsdp" not in comm_training.MODELS, reason="needs FSDP2 on a CPU, of torch 2.6")
def test_collectives_of_fsdp_have_the_module_whose_parameters_they_gather_and_reduce(
    ranks: list[dict[Any, Any]],
) -> None:
    """Each gathers the parameters of its own layer, and reduces as many gradients to a half on each rank."""
    whole = (8 * 8 + 8) * 4
    for found in ranks:
        sizes = found["fsdp", True]["bytes"]
        by_module = {name.partition(" of ")[2]: size for name, size in sizes.items() if "all_gather" in name}
        assert by_module == {"0": 2 * whole, "the root": whole}
        assert {name.partition(" of ")[2] for name in sizes if "reduce_scatter" in name} == {"0", "the root"}


def test_ddp_waits_for_its_reducer(ranks: list[dict[Any, Any]]) -> None:
    """Once in each backward pass."""
    for found in ranks:
        assert found["ddp", True]["calls"]["Comm/DDP"] == STEPS


def test_sends_and_receives_between_stages_are_spans(ranks: list[dict[Any, Any]]) -> None:
    """Each stage receives once in a step, then both meet at a barrier."""
    for found in ranks:
        calls = found["pipeline", True]["calls"]
        assert (calls["Comm/recv"], calls["Comm/barrier"]) == (STEPS, STEPS)


def test_the_bytes_of_a_step_are_those_of_its_tensors(ranks: list[dict[Any, Any]]) -> None:
    """Of the gradients that DDP reduces, of what is sent, received and waited for; a barrier has none."""
    for rank, found in enumerate(ranks):
        gradients = 2 * (8 * 8 + 8) * 4
        assert found["ddp", True]["bytes"]["Comm/DDP"] == gradients
        sizes = found["pipeline", True]["bytes"]
        assert sizes["Comm/recv"] == 4 * 8 * 4
        assert sizes.get("Comm/send") == (4 * 8 * 4 if rank == 0 else None)
        assert sizes["Comm/barrier"] is None
        assert found["tp", True]["bytes"]["Comm/wait_tensor"] == 4 * 8 * 4


def test_afterwards_torchs_operator_is_its_own_again(ranks: list[dict[Any, Any]]) -> None:
    """No kernel is left in the dispatcher."""
    assert not any(found["left"] for found in ranks)
