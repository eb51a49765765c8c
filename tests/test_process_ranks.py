"""The rank of a process: of the process group, or else of the launcher that started it."""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

import autoprof
from autoprof.base.process import ranks
from autoprof.base.process.ranks import launch_name, ranks_of


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"PMI_RANK": "5", "PMI_SIZE": "6"}, (5, 6)),
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}, (2, 4)),
        ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, (1, 2)),
    ],
)
def test_a_launcher_gives_rank_and_number_of_ranks(environment: dict[str, str], expected: tuple[int, int]) -> None:
    """torchrun and all who set its variables, MPI, SLURM, Lightning."""
    assert ranks_of(environment) == expected


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"},
        {"LOCAL_RANK": "1", "WORLD_SIZE": "4"},
        {"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "4"},
        {"RANK": "4", "WORLD_SIZE": "4"},
        {"RANK": "-1", "WORLD_SIZE": "4"},
        {"RANK": "one", "WORLD_SIZE": "²"},
        {"PMI_RANK": "0"},
    ],
)
def test_variables_that_give_no_rank_are_not_believed(environment: dict[str, str]) -> None:
    """The script of a SLURM job is one process; a number on a later machine is no rank; nonsense is none either."""
    assert ranks_of(environment) is None


def test_an_inner_launcher_counts_before_an_outer_one() -> None:
    """``srun torchrun`` starts one process a machine by SLURM, and the ranks by torchrun."""
    environment = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "RANK": "9", "WORLD_SIZE": "16"}
    assert ranks_of(environment) == (9, 16)


def test_the_process_group_counts_before_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they differ, the group is the one that trains."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert (ranks.rank(), ranks.world_size()) == (3, 8)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert (ranks.rank(), ranks.world_size()) == (0, 1)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("rank", "world_size"), [("3", None), (None, "8"), ("7", "4")])
def test_one_variable_alone_is_taken_at_its_word(
    rank: str | None, world_size: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As hand-written scripts set them; two that contradict each other are not."""
    for name, value in (("RANK", rank), ("WORLD_SIZE", world_size)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    expected = (0, 1) if rank and world_size else (int(rank or 0), int(world_size or 1))
    assert (ranks.rank(), ranks.world_size()) == expected


def test_a_launch_has_one_name_on_all_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started again by torchrun, it has another; ranks of several hosts have the name of their SLURM job."""
    first = launch_name()
    assert first == launch_name(os.getppid())
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert launch_name() == f"{first}-restart2"
    for name, value in {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RANK", raising=False)
    assert launch_name() == "slurm-17-0"


def test_a_process_group_made_after_the_session_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such ranks are not compared; the note says what to call first."""
    model = nn.Linear(2, 2)
    with autoprof.instrument(model, {"sinks": {}, "step": "manual"}) as session:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        model(torch.ones(1, 2)).sum().backward()
        session.step()
    assert any("call init_process_group first" in note for note in session.summary().notes)
