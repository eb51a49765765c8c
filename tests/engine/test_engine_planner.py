"""The planner by itself: a list of marks becomes spans, from mark to mark, without any time."""

from __future__ import annotations

from typing import NamedTuple

from autoprof import Phase
from autoprof._capture.mark_cost import MarkCost
from autoprof._capture.marks import codes as marks
from autoprof._capture.marks.codes import Label
from autoprof._resolve.plan import BackwardCall, Plan
from autoprof._resolve.planner import Planner
from autoprof.frame import LOGGED_LANE, NOT_MEASURED

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

    def on(self, lane: int) -> Step:
        """Put the next marks on another thread's lane."""
        self.lane = lane
        return self

    def plan(self, *, cut: bool = False, cost: MarkCost | None = None) -> Plan:
        """Return the plan."""
        planner = Planner(self.labels, cost or MarkCost(), self.earlier.get)
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


def test_calls_nest_as_they_enter_and_leave() -> None:
    """Parents come first; two calls of one module are two spans."""
    step = Step("a", "b", "c").enter("a").call("b").call("c").leave("a").call("b")
    assert step.spans() == [
        Span("a", FORWARD, 0, 5),
        Span("a>b", FORWARD, 1, 2),
        Span("a>c", FORWARD, 3, 4),
        Span("b", FORWARD, 6, 7),
    ]


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


def test_a_suspended_generator_that_goes_on_is_no_further_call() -> None:
    """It is a further span."""
    step = Step("a").call("a").mark(marks.RESUME, "a").leave("a")
    assert step.spans() == [Span("a", FORWARD, 0, 1), Span("a", FORWARD, 2, 3, calls=0)]


def test_each_thread_has_a_stack_of_its_own() -> None:
    """Their marks alternate, and their spans do not nest in each other. The mark that names a thread is none."""
    step = Step("a", "b").enter("a").on(1).mark(marks.THREAD).enter("b").on(0).leave("a")
    step.on(1).mark(marks.THREAD).leave("b")
    assert step.spans() == [Span("a", FORWARD, 0, 3), Span("b", FORWARD, 2, 5, lane=1)]
    assert step.plan().values.tolist() == [1, 4]


# Hidden modules: those of the model that are no target.


def test_hidden_spans_are_listed() -> None:
    """They are in the plan, by their numbers, so that their time can be counted by phase."""
    step = Step("a").label("b", shown=False).enter("b").call("a").leave("b").call("b")
    assert step.spans() == [Span("b", FORWARD, 0, 3), Span("b>a", FORWARD, 1, 2), Span("b", FORWARD, 4, 5)]
    assert step.plan().hidden == (0, 2)


def test_the_backward_of_a_hidden_module_is_unattributed() -> None:
    """It has no span of its own."""
    step = Step("a").label("b", shown=False).enter("b", 1).call("a", 2).leave("b", 1)
    step.begin_pass().start("b", 1).start("a", 2).end("a", 2).end("b", 1).end_pass()
    assert step.spans() == [
        Span("b", FORWARD, 0, 3),
        Span("b>a", FORWARD, 1, 2),
        Span("(backward)", BACKWARD, 4, 6),
        Span("a", BACKWARD, 6, 7),
        Span("(backward)", BACKWARD, 7, 9, calls=0),
    ]


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


def test_the_end_of_a_call_ends_the_calls_that_came_after_it() -> None:
    """Not those before it."""
    step = nest().begin_pass().start("c", 3).end("b", 2).end_pass()
    assert [(span.path, span.end) for span in backwards(step)] == [
        ("(backward)", 7),
        ("a", 9),
        ("a>c", 8),
    ]
    step = nest().begin_pass().start("b", 2).end("c", 3).end_pass()
    assert [(span.path, span.end) for span in backwards(step)] == [("(backward)", 7), ("a", 9), ("a>b", 9)]


def test_a_call_that_no_step_knows_is_counted() -> None:
    """It has no span, and what is open goes on."""
    step = nest().begin_pass().start("a", 1).start("b", 50).end("a", 1).end_pass()
    assert [span.path for span in backwards(step)] == ["(backward)", "a", "(backward)"]
    assert step.plan().unmatched == 1


def test_a_call_of_an_earlier_step_has_its_backward_here_with_the_calls_around_it() -> None:
    """The graph has outlived its step."""
    step = Step("a", "b", call7=BackwardCall(1, 6), call6=BackwardCall(0, None))
    step.begin_pass().start("b", 7).end("a", 6).end_pass()
    assert step.spans() == [
        Span("(backward)", BACKWARD, 0, 1),
        Span("a", BACKWARD, 1, 2),
        Span("a>b", BACKWARD, 1, 2),
        Span("(backward)", BACKWARD, 2, 3, calls=0),
    ]


def test_a_call_that_is_still_in_its_forward_has_no_backward() -> None:
    """A module that trains a part of itself; its part's backward lies in the forward."""
    step = Step("a", "b").enter("a", 1).call("b", 2).begin_pass().start("b", 2).end_pass().leave("a", 1)
    assert step.spans() == [
        Span("a", FORWARD, 0, 6),
        Span("a>b", FORWARD, 1, 2),
        Span("a>(backward)", BACKWARD, 3, 4),
        Span("a>b", BACKWARD, 4, 5),
    ]


def test_a_pass_that_an_exception_ended_is_over_when_a_forward_or_a_fetch_begins() -> None:
    """At the mark before: neither begins inside of a pass. A span of the user's may."""
    for phase, path, end in ((FORWARD, "next", 7), (Phase.DATA, "next", 7), (Phase.USER, "a>next", 10)):
        step = nest().label("next", phase, frozenset((phase,))).begin_pass().start("a", 1).call("next")
        assert backwards(step)[1] == Span("a", BACKWARD, 7, end)
        assert step.spans()[-1] == Span(path, phase, 8, 9)


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


def test_the_end_of_a_pass_ends_what_is_open_in_it_on_every_lane() -> None:
    """Each device has a thread that runs its part; that part's nodes join the pass."""
    step = nest().begin_pass().on(1).start("c", 3).on(0).start("b", 2).end_pass().on(1).call("c").on(0).call("b")
    assert [span for span in step.spans() if span.phase is BACKWARD] == [
        Span("(backward)", BACKWARD, 6, 8),
        Span("a", BACKWARD, 7, 9, lane=1),
        Span("a>c", BACKWARD, 7, 9, lane=1),
        Span("a", BACKWARD, 8, 9, calls=0),
        Span("a>b", BACKWARD, 8, 9),
    ]
    assert [span.path for span in step.spans() if span.start > 9] == ["c", "b"]


def test_a_call_that_another_devices_thread_has_run_ends_with_its_mark_on_any_lane() -> None:
    """This thread's own calls go on."""
    step = nest().begin_pass().on(1).start("c", 3).on(0).start("b", 2).end("c", 3).end_pass()
    ends = {(span.path, span.lane): span.end for span in step.spans() if span.phase is BACKWARD}
    assert ends == {("(backward)", 0): 8, ("a", 1): 10, ("a>c", 1): 9, ("a", 0): 10, ("a>b", 0): 10}


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
    assert step.plan().foreign_recomputes == 1


def test_a_checkpointed_call_is_recomputed_in_the_target_that_contains_it() -> None:
    """The modules in it are called again inside of it, and torch's own checkpoint is no foreign one."""
    step = Step("a", "b").label("checkpoint", RECOMPUTE, frozenset((RECOMPUTE,)))
    step.enter("a", 1).mark(marks.CHECKPOINT, "checkpoint", 2).call("b", 3).leave("a", 1)
    step.begin_pass().start("b", 3).mark(marks.RECOMPUTE, "checkpoint", 2)
    step.mark(marks.RECOMPUTE, "b", 4).leave("b", 4).leave("checkpoint").end("a", 1).end_pass()
    assert backwards(step) == [
        Span("(backward)", BACKWARD, 5, 6),
        Span("a", BACKWARD, 6, 11),
        Span("a>b", BACKWARD, 6, 7),
        Span("a>a", RECOMPUTE, 7, 10),
        Span("a>a>b", RECOMPUTE, 8, 9),
        Span("a>b", BACKWARD, 10, 11, calls=0),
        Span("(backward)", BACKWARD, 11, 12, calls=0),
    ]
    plan = step.plan()
    assert plan.foreign_recomputes == 0
    assert plan.values.tolist() == [1]
    assert plan.calls[2] == BackwardCall(0, 1)


def test_a_checkpoint_that_no_target_contains_has_a_span_of_its_own() -> None:
    """Around the modules in it."""
    step = Step("b").label("checkpoint", RECOMPUTE, frozenset((RECOMPUTE,)))
    step.mark(marks.CHECKPOINT, "checkpoint", 1).call("b", 2)
    step.begin_pass().mark(marks.RECOMPUTE, "checkpoint", 1)
    step.mark(marks.RECOMPUTE, "b", 3).leave("b", 3).leave("checkpoint").end_pass()
    assert backwards(step) == [
        Span("(backward)", BACKWARD, 3, 4),
        Span("checkpoint", RECOMPUTE, 4, 7),
        Span("checkpoint>b", RECOMPUTE, 5, 6),
        Span("(backward)", BACKWARD, 7, 8, calls=0),
    ]


# Values.


def test_a_logged_duration_ends_with_the_mark_before_it_on_a_lane_of_its_own() -> None:
    """Its length is the value at its own mark."""
    step = Step("a").label("elsewhere", Phase.USER, frozenset((Phase.USER,)))
    step.mark(marks.LOGGED, "elsewhere").enter("a").mark(marks.LOGGED, "elsewhere").leave("a")
    assert step.spans() == [
        Span("elsewhere", Phase.USER, 0, 0, lane=LOGGED_LANE),
        Span("a", FORWARD, 1, 3),
        Span("elsewhere", Phase.USER, 1, 1, lane=LOGGED_LANE),
    ]
    plan = step.plan()
    assert plan.logged.tolist() == [0, NOT_MEASURED, 2]
    assert plan.logged_spans.tolist() == [0, 2]
    assert plan.values.tolist() == [0, 2]


def test_bytes_belong_to_the_edge_before_them() -> None:
    """Three values at a span's start, three at its end; a reading of fewer has no others, and a fourth is ignored."""
    step = Step("a", "b").enter("a").mark(marks.MEMORY, times=3).enter("b").mark(marks.MEMORY)
    step.leave("b").mark(marks.MEMORY, times=4).leave("a")
    plan, none = step.plan(), NOT_MEASURED
    assert plan.memory is not None
    assert plan.memory.T.tolist() == [[1, 2, 3, none, none, none], [5, none, none, 7, 8, 9]]
    assert Step("a").call("a").plan().memory is None


# Pauses.


def test_spans_that_begin_in_a_pause_are_none_and_those_around_it_go_on() -> None:
    """What the pause's lane has open inside of it ends with the pause."""
    step = Step("a", "b").enter("a").mark(marks.PAUSE).enter("b").mark(marks.UNPAUSE).call("b").leave("a")
    assert step.spans() == [Span("a", FORWARD, 0, 6), Span("a>b", FORWARD, 4, 5)]
    assert step.plan().pauses == ((1, 3),)


def test_a_pause_is_cut_by_the_steps_ends() -> None:
    """It began in an earlier step, or ends in a later one."""
    plan = Step("a").mark(marks.UNPAUSE).call("a").mark(marks.PAUSE).enter("a").plan()
    assert plan.pauses == ((-1, 0), (3, 5))
    assert spans_of(plan) == [Span("a", FORWARD, 1, 2)]


# What else a plan says.


def test_the_overhead_is_the_cost_of_its_marks() -> None:
    """Marks of followed calls cost more; a reading of bytes counts its own time."""
    step = nest().call("b").mark(marks.MEMORY, times=3)
    assert step.plan(cost=MarkCost(forward_ns=10.0, backward_ns=100.0)).overhead_ns == 6 * 100 + 2 * 10


def test_a_plan_is_kept_for_equal_marks_unless_they_mean_another_call_each_time() -> None:
    """Those of a cut step, and those that refer to an earlier step."""
    assert nest().plan().repeatable
    assert Step().plan().repeatable
    assert not nest().plan(cut=True).repeatable
    earlier = nest()
    earlier.codes.append(earlier.codes[0] - marks.STEP_STRIDE)
    earlier.lanes.append(0)
    assert not earlier.plan().repeatable
