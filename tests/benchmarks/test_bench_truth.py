"""The referee: what it makes of a trace, what it calls an error, and that it runs beside autoprof."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autoprof
from autoprof import Phase, Span
from autoprof.testing import ListSink, make_frame
from benchmarks.truth.__main__ import main, verdict
from benchmarks.truth.account import Account, Referee
from benchmarks.truth.compare import compare
from benchmarks.truth.ours import account_of
from benchmarks.truth.trace import EVALUATION, PASS, RANGE, Interval, Recording, Trace, module_ranges

FORWARD, RECOMPUTE, BACKWARD = Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD


def call(fqn: str, start: int, end: int) -> Interval:
    """A module's range on thread 1."""
    return Interval(RANGE + fqn, 1, start, end)


def op(start: int, end: int, sequence: int) -> Interval:
    """An operator on thread 1."""
    return Interval("aten::op", 1, start, end, sequence)


def node(start: int, end: int, sequence: int, thread: int = 1) -> Interval:
    """The engine's work on a node that thread 1 made; -1 is a leaf's."""
    return Interval(EVALUATION + "Backward", thread, start, end, sequence, 0 if sequence < 0 else 1)


def referee(*events: Interval) -> Account:
    """Sort the events as a trace has them and make the account."""
    ranges = [one for one in events if one.name.startswith(RANGE)]
    nodes = [one for one in events if one.name.startswith(EVALUATION)]
    passes = [one for one in events if one.name.startswith(PASS)]
    rest = [one for one in events if one not in ranges and one not in nodes and one not in passes]
    return Referee(Trace(ranges, nodes, rest, passes)).run()


def backward(start: int, end: int) -> Interval:
    """A call of ``torch.autograd.backward``."""
    return Interval(PASS, 1, start, end)


def test_forward_is_the_length_of_a_modules_ranges() -> None:
    """Two calls add up; a call inside a call of the same module counts once."""
    account = referee(call("a", 0, 10), call("b", 20, 60), call("b", 30, 40), call("a", 70, 75))
    assert account.modules == {("a", FORWARD): 15, ("b", FORWARD): 40}


def test_a_node_takes_the_time_up_to_the_next_one_and_belongs_to_the_modules_around_its_operator() -> None:
    """Also the engine's time between the two."""
    forward = (call("a", 0, 50), call("a.b", 10, 20), op(12, 14, 0), op(30, 32, 1))
    account = referee(*forward, node(100, 110, 1), node(115, 140, 0))
    assert account.modules["a", BACKWARD] == 40
    assert account.modules["a.b", BACKWARD] == 25


def test_a_range_in_a_nodes_time_is_recompute_and_no_backward_of_anyone() -> None:
    """What a checkpoint computes again is apart."""
    forward = (call("a", 0, 10), call("a.b", 1, 9), op(2, 3, 0))
    account = referee(*forward, node(100, 160, 0), call("a.b", 110, 140), op(111, 112, 1))
    assert account.modules["a.b", RECOMPUTE] == 30
    assert account.modules["a", BACKWARD] == account.modules["a.b", BACKWARD] == 30


def test_our_side_takes_recompute_out_of_backward_and_counts_a_name_once() -> None:
    """A frame's spans by fqn: the same definitions as the referee's."""
    spans = (
        Span("A", "a", FORWARD, None, 0, 40),
        Span("A", "a", FORWARD, 0, 10, 20),
        Span("A", "a", BACKWARD, None, 100, 60),
        Span("B", "a.b", RECOMPUTE, 2, 110, 15),
        Span("B", "a.b", BACKWARD, 2, 125, 10),
        Span("(backward)", None, BACKWARD, None, 160, 5),
    )
    account = account_of(make_frame(spans))
    assert account.modules == {
        ("a", FORWARD): 40,
        ("a", BACKWARD): 45,
        ("a.b", RECOMPUTE): 15,
        ("a.b", BACKWARD): 10,
        ("(backward)", BACKWARD): 5,
    }
    assert account.backward_ns == 65


@pytest.mark.parametrize(("ours", "reached"), [(100, True), (103, False), (97, False)])
def test_a_bound_is_reached_or_missed(ours: int, reached: bool) -> None:
    """In the table as in the exit status."""
    result = compare("case", [(Account({("a", FORWARD): 100}, 100), Account({("a", FORWARD): ours}, 100))], 10)
    assert verdict([result])[0][1] is reached


class Block(nn.Module):
    """A linear layer, checkpointed, and a residual sum."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.linear, self.reentrant = nn.Linear(4, 4), reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, 4) to the same shape."""
        return x + checkpoint(self.linear, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_both_sides_see_the_same_modules_in_the_same_phases(reentrant: bool) -> None:
    """On a live step, with both at work at once."""
    model = nn.Sequential(nn.Linear(4, 4), Block(reentrant), nn.Tanh())
    config = {"targets": [{"match": ".*"}], "sinks": {}, "step": "manual", "sample": {"warmup": 0, "budget": None}}
    sink, recording = ListSink(), Recording()
    with module_ranges(model), autoprof.instrument(model, config, sinks=[sink]) as session:
        with recording:
            model(torch.ones(2, 4)).sum().backward()
        session.step()
    theirs, ours = Referee(recording.trace).run(), account_of(sink.frames[0])
    assert set(theirs.modules) == set(ours.modules) - {("(backward)", BACKWARD)}
    assert {(fqn, phase) for fqn, phase in theirs.modules if fqn == "1.linear"} == {
        ("1.linear", FORWARD), ("1.linear", RECOMPUTE), ("1.linear", BACKWARD),
    }  # fmt: skip
    assert theirs.orphans == 0


@pytest.mark.slow
def test_the_command_prints_and_writes_the_same_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status says whether the bounds are reached."""
    threads, page = torch.get_num_threads(), tmp_path / "truth.md"
    try:
        status = main(["--quick", "--page", str(page), "--raw", str(tmp_path / "truth.json")])
    finally:
        torch.set_num_threads(threads)
    (result,) = json.loads((tmp_path / "truth.json").read_text())["results"]
    assert (result["name"], result["steps"]) == ("small GPT", 2)
    assert len(result["lines"]) > 5
    assert page.read_text() == capsys.readouterr().out
    assert status == int("MISSED" in page.read_text())
