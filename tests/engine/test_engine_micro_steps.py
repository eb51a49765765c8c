"""Gradient accumulation: the rounds of forward and backward inside one optimizer step are counted, and nothing else."""

from typing import Any

import pytest
import torch
from engine_laws import Watched, everything
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from autoprof import Phase
from autoprof._capture.marks import codes as marks
from autoprof._capture.marks.codes import Label
from autoprof._reports.summary_text import render_summary
from autoprof._resolve.grad_accumulation import MicroStepCounter
from autoprof._stats import Aggregate
from autoprof._storage.steps_jsonl import FrameDecoder, FrameEncoder


class Net(nn.Module):
    """Two layers, the second one checkpointed if asked."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(2, 2), nn.Linear(2, 1), reentrant

    def forward(self, x: Tensor) -> Any:
        hidden = self.first(x)
        if self.reentrant is None:
            return self.second(hidden)
        return checkpoint(self.second, hidden, use_reentrant=self.reentrant)


def accumulate(model: nn.Module, optimizer: Any, rounds: int) -> None:
    """Run so many micro-batches and one optimizer step."""
    for _ in range(rounds):
        model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer of the model's."""
    return torch.optim.SGD(model.parameters(), lr=0.01)


@pytest.mark.parametrize("reentrant", [None, False, True])
@pytest.mark.parametrize("step", ["auto", "manual"])
def test_micro_steps_are_counted_inside_one_optimizer_step(step: str, reentrant: bool | None) -> None:
    """Four rounds, then one, then four again; checkpointing adds no round, nor does a backward inside a backward."""
    model = Net(reentrant)
    optimizer = sgd(model)
    with Watched(model, config=everything(step=step), optimizer=optimizer) as watched:
        for rounds in (4, 1, 4):
            accumulate(model, optimizer, rounds)
            if step == "manual":
                watched.step()
    assert [frame.micro_steps for frame in watched.sink.frames] == [4, 1, 4]
    assert watched.sink.summary is not None
    assert watched.sink.summary.micro_steps == 4


def test_micro_steps_are_in_the_records_and_in_the_report() -> None:
    """``steps.jsonl`` has the count at its top level and gives it back; the report has one line where it is above 1."""
    model = Net()
    with Watched(model) as watched:
        accumulate(model, sgd(model), 2)
        watched.step()
        frame = watched.frames[0]
        report = render_summary(watched.session.summary())
    line = FrameEncoder().encode(frame)
    assert '"micro_steps":2' in line
    assert FrameDecoder().decode(line).micro_steps == 2
    assert "2 micro-batches per optimizer step" in " ".join(" ".join(report).split())
    aggregate = Aggregate()
    aggregate.add(FrameDecoder().decode(line))
    assert aggregate.summary().micro_steps == 2


MODEL, UPDATE, CLIP = range(3)
LABELS = [
    Label("model", "model", Phase.FORWARD, frozenset(Phase)),
    Label("SGD", None, Phase.OPTIMIZER, frozenset(Phase)),
    Label("SGD/clip", None, Phase.OPTIMIZER, frozenset(Phase)),
]


def micro_steps(text: str) -> int | None:
    """Count in a step written in letters: f is a forward, b the backward pass of the last one, 1 and 2 of the first
    and second one, u a pass in which no call is followed, p and P a pass's begin and end, [ and ] an optimizer step's,
    { and } its closure's, k clipping.
    """
    counter = MicroStepCounter(LABELS)
    calls = 0

    def add(kind: int, index: int = 0, ordinal: int = 0) -> None:
        counter.add(kind, index, ordinal)

    for letter in text:
        if letter == "f":
            calls += 1
            add(marks.ENTER, MODEL, calls)
            add(marks.LEAVE, MODEL, calls)
        elif letter in "b12u":
            add(marks.GRAPH_BEGIN, 0, 90)
            if letter != "u":
                add(marks.BACKWARD_START, MODEL, int(letter) if letter.isdigit() else calls)
            add(marks.GRAPH_END, 0, 90)
        elif letter == "k":
            add(marks.ENTER, CLIP)
            add(marks.LEAVE, CLIP)
        else:
            kind, index = LETTERS[letter]
            add(kind, index, 92 if kind in (marks.GRAPH_BEGIN, marks.GRAPH_END) else 0)
    return counter.result


LETTERS = {
    "p": (marks.GRAPH_BEGIN, 0),
    "P": (marks.GRAPH_END, 0),
    "[": (marks.ENTER, UPDATE),
    "]": (marks.LEAVE, UPDATE),
    "{": (marks.LEAVE, UPDATE),  # a closure suspends the optimizer's span
    "}": (marks.RESUME, UPDATE),
}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", None),
        ("f[]", None),
        ("fbfbfb[]", 3),
        ("fbfb[]fbfbfb[]fb[]", 3),
        ("fbbb[]", 1),  # several losses of one forward
        ("ff12[]", 2),  # all forwards before all passes
        ("fufu[]", 2),
        ("fuu[]", 1),  # a pass of which no call is followed is a further one where no forward came before it
        ("fbkfbk[]k", 2),
        ("fb[]b[]", 1),
        ("fpfbP[]", 1),  # a pass inside a pass
        ("fbfp", 2),  # a pass that the step's end cuts
        ("[{fb}]", 1),  # one closure: its pass is the micro-step
        ("fbfb[{fb}]", 3),  # and the last one where others came before
        ("[{fb}{fb}{fb}]", 1),  # line search
        ("fb[{fb}]fb[{fb}]", 2),
        ("fb[{fb}]fbfbfb[]", 3),
        ("fb[{}]", 1),
        ("fb}]", 1),  # the step began in the optimizer's closure
    ],
)
def test_micro_steps_are_forwards_and_their_backward_passes_before_one_optimizer_step(
    text: str, count: int | None
) -> None:
    """The most of the step; None where there was no pass."""
    assert micro_steps(text) == count
