"""The table of communication of two real ranks: DDP and its hooks, FSDP, tensor parallel, sends between stages."""

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


def rows(found: dict[Any, Any], kind: str) -> dict[tuple[str, str, str], Any]:
    """Return the rows of one training by kind, caller and phase; those of several sizes added up."""
    added: dict[tuple[str, str, str], Any] = {}
    for row in found[kind, True]["table"]["rows"]:
        one = added.setdefault((row["kind"], row["caller"], row["phase"]), row | {"calls": 0, "bytes": 0})
        one["calls"] += row["calls"]
        one["bytes"] += row["bytes"]
        one["bus_bytes_per_s"] = one["bus_bytes_per_s"] or row["bus_bytes_per_s"]  # None for an empty tensor
    return added


@pytest.mark.parametrize("kind", [*comm_training.MODELS, "pipeline"])
def test_gradients_and_parameters_have_the_same_bits(ranks: list[dict[Any, Any]], kind: str) -> None:
    """With the table and without, under every option of DDP and with the user's own communication hooks."""
    for found in ranks:
        expected, bits = found[kind, False]["bits"], found[kind, True]["bits"]
        assert len(bits) == len(expected) >= STEPS
        for one, other in zip(bits, expected, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes()
        assert found[kind, True]["skipped"] == {}


@pytest.mark.parametrize("kind", [*comm_training.MODELS, "pipeline"])
def test_the_parts_of_the_steps_add_up(ranks: list[dict[Any, Any]], kind: str) -> None:
    """Compute, exposed and idle time are the steps; the rows have no more of the exposed time than there is."""
    for found in ranks:
        table = found[kind, True]["table"]
        assert table["steps"] == STEPS
        assert table["compute_ns"] + table["exposed_ns"] + table["idle_ns"] == table["step_ns"]
        assert min(table["compute_ns"], table["exposed_ns"], table["idle_ns"], table["unassigned_ns"]) >= 0
        assert sum(row["exposed_ns"] for row in table["rows"]) + table["unassigned_ns"] == table["exposed_ns"]
        assert all(row["timed"] == row["calls"] for row in table["rows"])


def test_ddps_buckets_have_the_bytes_of_the_gradients(ranks: list[dict[Any, Any]]) -> None:
    """Each step all-reduces every gradient once, and the hook in 16 bits half of that."""
    parameters = sum(parameter.numel() for parameter in comm_training.layers().parameters())
    for found in ranks:
        assert rows(found, "ddp")["all_reduce", "DDP", "backward"]["bytes"] == STEPS * 4 * parameters
        assert rows(found, "ddp late")["all_reduce", "DDP", "backward"]["bytes"] == STEPS * 2 * parameters


@pytest.mark.skipif("fsdp" not in comm_training.MODELS, reason="this version of torch shards on CUDA only")
def test_fsdp_gathers_in_both_passes_and_scatters_in_backward(ranks: list[dict[Any, Any]]) -> None:
    """Bytes as nccl-tests counts: the gathered parameters, the gradients before they are scattered."""
    parameters = sum(parameter.numel() for parameter in comm_training.layers().parameters())
    for found in ranks:
        table = rows(found, "fsdp")
        assert table["all_gather", "FSDP", "forward"]["bytes"] == STEPS * 4 * parameters
        assert table["reduce_scatter", "FSDP", "backward"]["bytes"] == STEPS * 4 * parameters
        assert {row["ranks"] for row in table.values()} == {2}


def test_tensor_parallel_layers_all_reduce_in_forward(ranks: list[dict[Any, Any]]) -> None:
    """The output of the row-wise layer; its wait is a communication span, though C++ waits."""
    for found in ranks:
        row = rows(found, "tp")["all_reduce", "DTensor", "forward"]
        assert (row["calls"], row["bytes"]) == (STEPS, STEPS * 4 * 8 * 4)
        assert found["tp", True]["table"]["exposed_ns"] > 0


def test_sends_and_receives_between_stages_are_rows(ranks: list[dict[Any, Any]]) -> None:
    """Each stage sends once and receives once in a step, then both meet at a barrier."""
    for found in ranks:
        table = rows(found, "pipeline")
        assert {kind for kind, _, _ in table} == {"send", "recv", "barrier"}
        assert all(row["calls"] == STEPS for row in table.values())
        assert table["recv", "", "other"]["bytes"] == STEPS * 4 * 8 * 4
        assert table["barrier", "", "other"]["bus_bytes_per_s"] is None


def test_afterwards_torchs_operators_are_its_own_again(ranks: list[dict[Any, Any]]) -> None:
    """No kernel is left in the dispatcher."""
    assert not any(found["left"] for found in ranks)
