"""The planner by itself: a list of marks becomes spans, from mark to mark, without any time."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from autoprof import Phase
from autoprof.base.frame import NOT_MEASURED
from autoprof.capture.marks import codes as marks
from autoprof.capture.marks.codes import Label
from autoprof.resolve.plan import BackwardCall, Plan
from autoprof.resolve.planner import Planner

MODULE = frozenset((Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD))
FORWARD, RECOMPUTE, BACKWARD = Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD


class Span(NamedTuple):
    """A span from mark to mark, with the names of those around it."""

    path: str
    phase: Phase
    start: int
    end: int
    calls: int = 1
    lane: int = 0


class Step:
    """The marks of one step, by the names of modules and the numbers of calls."""

    def __init__(self, *names: str, **earlier: BackwardCall) -> None:
        self.labels: list[Label] = []
        for name in names:
            self.label(name)
        self.codes: list[int] = []
        self.lanes: list[int] = []
        self.lane = 0
        self.inner: dict[str, Label] = {}
        self.earlier = {int(ordinal.removeprefix("call")): call for ordinal, call in earlier.items()}

    def label(
        self, name: str, phase: Phase = FORWARD, phases: frozenset[Phase] = MODULE, *, shown: bool = True
    ) -> Step:
        """Add a name."""
        self.labels.append(Label(name, name, phase, phases, shown))
        return self

    def mark(self, kind: int, name: str | None = None, call: int = 0, times: int = 1) -> Step:
        """Add a mark."""
        index = 0 if name is None else [label.name for label in self.labels].index(name)
        self.codes += [kind | index << marks.KIND_BITS | call * marks.ORDINAL_STRIDE] * times
        self.lanes += [self.lane] * times
        return self

    def enter(self, name: str, call: int = 0) -> Step:
        return self.mark(marks.ENTER, name, call)

    def leave(self, name: str, call: int = 0) -> Step:
        return self.mark(marks.LEAVE, name, call)

    def call(self, name: str, call: int = 0) -> Step:
        return self.enter(name, call).leave(name, call)

    def start(self, name: str, call: int) -> Step:
        return self.mark(marks.BACKWARD_START, name, call)

    def end(self, name: str, call: int) -> Step:
        return self.mark(marks.BACKWARD_END, name, call)

    def begin_pass(self, number: int = 90) -> Step:
        return self.mark(marks.GRAPH_BEGIN, call=number)

    def end_pass(self, number: int = 90) -> Step:
        return self.mark(marks.GRAPH_END, call=number)

    def part(self, path: str, phase: Phase = FORWARD, *, inside: str | None = "m") -> Step:
        """Add a mark in the graph of a module: the modules around the next kernels; "end" after the last one."""
        labels = {name: Label(name, name, FORWARD, MODULE) for name in (*path.split(">"), "rest") if name}
        labels = {name: self.inner.setdefault(name, label) for name, label in labels.items()}
        inner = ("rest",) if path == "end" else [name for name in path.split(">") if name]
        found = marks.PartPath(tuple(labels[name] for name in inner), labels["rest"])
        self.labels.append(Label("", None, phase, frozenset(), shown=False, inside={inside: found}))
        self.codes.append(marks.PART | (len(self.labels) - 1) << marks.KIND_BITS)
        self.lanes.append(self.lane)
        return self

    def on(self, lane: int) -> Step:
        """Put the next marks on another thread's lane."""
        self.lane = lane
        return self

    def plan(self, *, cut: bool = False, mark_ns: float = 0.0) -> Plan:
        """Return the plan."""
        planner = Planner(self.labels, mark_ns, self.earlier.get)
        return planner.plan(self.codes, self.lanes, cut=True) if cut else planner.plan(self.codes, self.lanes)

    def spans(self, *, cut: bool = False) -> list[Span]:
        """Return the spans of the plan."""
        return spans_of(self.plan(cut=cut))


def spans_of(plan: Plan) -> list[Span]:
    """Return the spans of a plan."""
    layout, paths, found = plan.layout, [], []
    for i, name in enumerate(layout.names):
        parent = layout.parents[i]
        assert -1 <= parent < i
        paths.append(name if parent < 0 else f"{paths[parent]}>{name}")
        start, end = int(plan.starts[i]), int(plan.ends[i])
        found.append(Span(paths[i], layout.phases[i], start, end, layout.calls[i], layout.lanes[i]))
    return found


# Spans that enter and leave.


def test_a_call_that_is_left_ends_those_that_are_still_open_in_it() -> None:
    """An exception passed through them."""
    step = Step("a", "b", "c").enter("a").enter("b").enter("c").leave("a").call("c")
    assert step.spans() == [
        Span("a", FORWARD, 0, 3),
        Span("a>b", FORWARD, 1, 3),
        Span("a>b>c", FORWARD, 2, 3),
        Span("c", FORWARD, 4, 5),
    ]
    assert step.plan().unmatched == 0


def test_a_call_is_left_by_its_number_where_it_has_one() -> None:
    """A module that calls itself, and an exception that ends the outer call."""
    step = Step("a").enter("a", 1).enter("a", 2).leave("a", 1).leave("a", 2).call("a", 3)
    assert step.spans() == [Span("a", FORWARD, 0, 2), Span("a>a", FORWARD, 1, 2), Span("a", FORWARD, 4, 5)]
    assert step.plan().unmatched == 1


def test_what_was_never_entered_is_left_without_effect_and_counted() -> None:
    """Each time."""
    step = Step("a", "b").enter("a").leave("b").leave("b").leave("a")
    assert step.spans() == [Span("a", FORWARD, 0, 3)]
    assert step.plan().unmatched == 2


def test_open_spans_end_with_the_step_or_where_it_was_cut_with_their_lanes_last_mark() -> None:
    """Their real end is unknown then; a value is no time at which they can end."""
    step = Step("a", "b").enter("a").call("b").on(1).enter("b").on(0).mark(marks.MEMORY)
    assert step.spans() == [
        Span("a", FORWARD, 0, 5),
        Span("a>b", FORWARD, 1, 2),
        Span("b", FORWARD, 3, 5, lane=1),
    ]
    assert [span.end for span in step.spans(cut=True)] == [2, 2, 3]
    assert [span.end for span in Step("a").mark(marks.MEMORY).enter("a").spans(cut=True)] == [1]


# Backward passes.


def nest() -> Step:
    """Return a step in which a has called b and c: marks 0 to 5."""
    return Step("a", "b", "c").enter("a", 1).call("b", 2).call("c", 3).leave("a", 1)


def backwards(step: Step) -> list[Span]:
    """Return the spans of phases other than forward."""
    return [span for span in step.spans() if span.phase is not FORWARD]


def test_a_backward_begins_with_the_node_of_its_output_and_ends_with_that_of_its_input() -> None:
    """The call around it has begun by then; between modules of a pass time is unattributed."""
    step = nest().begin_pass().start("a", 1).start("c", 3).end("c", 3).start("b", 2).end("b", 2).end("a", 1)
    assert backwards(step.end_pass()) == [
        Span("(backward)", BACKWARD, 6, 7),
        Span("a", BACKWARD, 7, 12),
        Span("a>c", BACKWARD, 8, 9),
        Span("a>b", BACKWARD, 10, 11),
        Span("(backward)", BACKWARD, 12, 13, calls=0),
    ]
    assert step.plan().unmatched == 0


def test_a_backward_begins_with_all_that_is_around_it_and_ends_those_that_were_called_later() -> None:
    """Nodes run in the reverse order of the calls: when one of b runs, c is over."""
    step = nest().begin_pass().start("c", 3).start("b", 2).end("a", 1).end_pass()
    assert backwards(step) == [
        Span("(backward)", BACKWARD, 6, 7),
        Span("a", BACKWARD, 7, 9),
        Span("a>c", BACKWARD, 7, 8),
        Span("a>b", BACKWARD, 8, 9),
        Span("(backward)", BACKWARD, 9, 10, calls=0),
    ]


def test_a_backward_that_goes_on_is_no_further_call() -> None:
    """Its nodes run in two parts, with those of its caller's neighbour in between."""
    step = nest().begin_pass().start("b", 2).start("c", 3).start("b", 2).end_pass()
    assert backwards(step)[1:] == [
        Span("a", BACKWARD, 7, 10),
        Span("a>b", BACKWARD, 7, 8),
        Span("a>c", BACKWARD, 8, 9),
        Span("a>b", BACKWARD, 9, 10, calls=0),
    ]


def test_a_pass_inside_a_pass_divides_no_time_of_its_own() -> None:
    """A gradient of a gradient: what is in no module there belongs to the module whose backward runs it."""
    step = nest().begin_pass(90).start("a", 1).begin_pass(91).start("b", 2).end("b", 2).end_pass(91).end("a", 1)
    step.end_pass(90)
    assert [(span.path, span.start, span.end) for span in backwards(step)] == [
        ("(backward)", 6, 7),
        ("a", 7, 12),
        ("a>b", 9, 10),
        ("(backward)", 12, 13),
    ]


# Recomputation.


def test_a_module_that_is_called_again_interrupts_the_backwards_inside_its_own() -> None:
    """They go on when it is left, as the same call; it lies in its own backward."""
    step = nest().begin_pass().start("c", 3).mark(marks.RECOMPUTE, "a", 4).leave("a", 4).end("a", 1).end_pass()
    assert backwards(step) == [
        Span("(backward)", BACKWARD, 6, 7),
        Span("a", BACKWARD, 7, 10),
        Span("a>c", BACKWARD, 7, 8),
        Span("a>a", RECOMPUTE, 8, 9),
        Span("a>c", BACKWARD, 9, 10, calls=0),
        Span("(backward)", BACKWARD, 10, 11, calls=0),
    ]


# Values.


def test_bytes_belong_to_the_edge_before_them() -> None:
    """Two values at a span's start, two at its end; a reading of one has no other, and a third is ignored."""
    step = Step("a", "b").enter("a").mark(marks.MEMORY, times=2).enter("b").mark(marks.MEMORY)
    step.leave("b").mark(marks.MEMORY, times=3).leave("a")
    plan, none = step.plan(), NOT_MEASURED
    assert plan.memory is not None
    assert plan.memory.T.tolist() == [[1, 2, none, none], [4, none, 6, 7]]
    assert Step("a").call("a").plan().memory is None


# Pauses.


def test_a_pause_is_cut_by_the_steps_ends() -> None:
    """It began in an earlier step, or ends in a later one."""
    plan = Step("a").mark(marks.UNPAUSE).call("a").mark(marks.PAUSE).enter("a").plan()
    assert plan.pauses == ((-1, 0), (3, 5))
    assert spans_of(plan) == [Span("a", FORWARD, 1, 2)]


# What else a plan says.


def test_the_overhead_is_the_cost_of_its_marks() -> None:
    """A reading of bytes counts its own time."""
    step = nest().call("b").mark(marks.MEMORY, times=3)
    assert step.plan(mark_ns=10.0).overhead_ns == 8 * 10


def test_a_plan_is_kept_for_equal_marks_unless_they_mean_another_call_each_time() -> None:
    """Those of a cut step, and those that refer to an earlier step."""
    assert nest().plan().repeatable
    assert Step().plan().repeatable
    assert not nest().plan(cut=True).repeatable
    earlier = nest()
    earlier.codes.append(earlier.codes[0] - marks.STEP_STRIDE)
    earlier.lanes.append(0)
    assert not earlier.plan().repeatable


@pytest.mark.parametrize(("is_open", "lane"), [(False, 0), (True, 1)])
def test_an_update_on_another_thread_is_the_steps_own_where_the_training_thread_runs_nothing(
    is_open: bool, lane: int
) -> None:
    """Forward and backward run in an executor, and ``step()`` outside of it; a forward meanwhile runs beside it."""
    step = Step("net").label("Optimizer", Phase.OPTIMIZER, frozenset((Phase.OPTIMIZER,)))
    step.enter("net", 1)
    if not is_open:
        step.leave("net", 1)
    step.lane = 1
    step.enter("Optimizer").leave("Optimizer")
    step.lane = 0
    if is_open:
        step.leave("net", 1)
    plan = step.plan()
    assert plan.layout.lanes[plan.layout.names.index("Optimizer")] == lane


# Graphs of compiled modules.


def test_the_parts_of_a_graph_nest_in_the_call_that_runs_it_and_the_rest_of_the_call_is_a_row() -> None:
    """What a part shares with the next one goes on."""
    step = Step("m").enter("m").part("a").part("a>b").part("c").part("").part("end").leave("m")
    assert step.spans() == [
        Span("m", FORWARD, 0, 6),
        Span("m>rest", FORWARD, 0, 1),
        Span("m>a", FORWARD, 1, 3),
        Span("m>a>b", FORWARD, 2, 3),
        Span("m>c", FORWARD, 3, 4),
        Span("m>rest", FORWARD, 5, 6, calls=0),
    ]


def test_the_parts_of_a_module_in_one_call_count_as_one_call() -> None:
    """Kernels of other modules run between them."""
    step = Step("m").enter("m").part("a").part("b").part("a").part("end").leave("m")
    assert [span.calls for span in step.spans() if span.path == "m>a"] == [1, 0]


def test_a_graph_of_backward_runs_in_the_backward_of_its_module() -> None:
    """A part that is computed again is recompute."""
    step = Step("m").call("m", 1).begin_pass().start("m", 1)
    step.part("a", RECOMPUTE).part("a", BACKWARD).part("end", BACKWARD).end_pass()
    assert step.spans()[2:] == [
        Span("m", BACKWARD, 3, 7),
        Span("m>rest", BACKWARD, 3, 4),
        Span("m>a", RECOMPUTE, 4, 5),
        Span("m>a", BACKWARD, 5, 6),
        Span("m>rest", BACKWARD, 6, 7, calls=0),
    ]


def test_a_graph_that_runs_again_in_a_recompute_is_recompute() -> None:
    """Checkpointing around a compiled block."""
    step = Step("m").call("m", 1).begin_pass().start("m", 1).mark(marks.RECOMPUTE, "m", 2)
    step.part("a").part("end").leave("m", 2).end_pass()
    assert Span("m>m>a", RECOMPUTE, 5, 6) in step.spans()


def test_two_graphs_of_one_call_have_its_time_between_them_in_the_rest() -> None:
    """A graph break."""
    step = Step("m").enter("m").part("a").part("end").part("b").part("end").leave("m")
    assert [(span.path, span.start, span.end) for span in step.spans()[1:]] == [
        ("m>rest", 0, 1),
        ("m>a", 1, 2),
        ("m>rest", 2, 3),
        ("m>b", 3, 4),
        ("m>rest", 4, 5),
    ]


def test_a_module_called_between_two_graphs_is_no_part_of_the_rest() -> None:
    """One that torch did not compile."""
    step = Step("m", "e").enter("m").part("a").part("end").call("e").part("b").part("end").leave("m")
    assert ("m>e", 3, 4) in [(span.path, span.start, span.end) for span in step.spans()]
    assert [(span.start, span.end) for span in step.spans() if span.path == "m>rest"] == [
        (0, 1),
        (2, 3),
        (4, 5),
        (6, 7),
    ]


def test_the_graph_of_a_function_around_the_model_begins_at_the_model() -> None:
    """No call of a module is marked: torch compiled the function that calls it."""
    step = Step("m").part("m>a", inside=None).part("m", inside=None).part("end", inside=None)
    assert step.spans() == [Span("m", FORWARD, 0, 2), Span("m>a", FORWARD, 0, 1)]


def test_a_graph_in_an_unknown_call_leaves_its_time_whole() -> None:
    """The labels know the calls in which the graph may run."""
    step = Step("m").enter("m").part("a", inside="x").part("end", inside="x").leave("m")
    assert step.spans() == [Span("m", FORWARD, 0, 3)]
