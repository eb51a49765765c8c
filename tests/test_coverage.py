"""Which modules hooks see: predicted before a step, measured in one; scripted modules are timed."""

from __future__ import annotations

import copy
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attached import is_marked
from torch import nn
from torch.utils.checkpoint import checkpoint

import autoprof
from autoprof._targets import CallCounter, Coverage, Reason, measure_coverage, predict_coverage
from autoprof.testing import ListSink

EVERY = {"targets": [{"match": ".*"}], "sinks": {}, "sample": {"warmup": 0}}
scripting = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Pair(nn.Module):
    """Two layers, run as the test says."""

    def __init__(self, run: Callable[[Pair, torch.Tensor], torch.Tensor] | None = None) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = nn.Linear(2, 2)
        self.run = run

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x)) if self.run is None else self.run(self, x)


class BaseTuner(nn.Module):
    """The inner wrapper of PEFT."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model.forward(x)


class PeftModel(nn.Module):
    """The outer wrapper of PEFT."""

    def __init__(self, tuner: BaseTuner) -> None:
        super().__init__()
        self.base_model = tuner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_model(x)


class Plain(nn.Module):
    """Two layers in a form that TorchScript understands."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


def step(model: nn.Module, x: torch.Tensor | None = None) -> None:
    """Run a step; leave the gradients."""
    output = model(torch.ones(1, 2) if x is None else x)
    if output.requires_grad:
        output.sum().backward()


def seen_in_a_step(model: nn.Module, x: torch.Tensor | None = None) -> dict[str, Coverage]:
    """Return the coverage of a model by one observed step, and by the spans of a session on a copy."""
    sink, other = ListSink(), copy.deepcopy(model)
    with autoprof.instrument(other, EVERY, sinks=[sink]) as session:
        step(other, x)
        session.step()
    calls: dict[str, int] = {}
    for span in sink.frames[0].spans:
        if span.fqn is not None and span.phase is autoprof.Phase.FORWARD:
            calls[span.fqn] = calls.get(span.fqn, 0) + span.calls
    with CallCounter(model) as counter:
        step(model, x)
    return {one.fqn: one for one in measure_coverage(model, counter, calls)}


def reason_of(model: nn.Module, fqn: str) -> Reason | None:
    """Return why one module is not seen in a step."""
    return seen_in_a_step(model)[fqn].reason


class TestBeforeAStep:
    """What is certain from the model alone."""

    def test_an_ordinary_module_is_left_to_a_step(self) -> None:
        """Nothing hides it, but only a step can tell whether it is called."""
        assert predict_coverage(Pair()) == (
            Coverage("", "Pair", None),
            Coverage("a", "Linear", None),
            Coverage("b", "Linear", None),
        )

    @pytest.mark.parametrize("container", [nn.ModuleList(), nn.ModuleDict(), nn.ParameterList(), nn.ParameterDict()])
    def test_a_container_is_never_called(self, container: nn.Module) -> None:
        """It says so, and that the modules in it are timed instead."""
        model = nn.Sequential()
        model.add_module("held", container)
        found = predict_coverage(model)[1]
        assert (found.seen, found.reason) == (False, Reason.CONTAINER)
        assert "timed instead" in found.why

    def test_the_inside_of_a_compiled_module_is_hidden(self) -> None:
        """The compiled wrapper itself is not."""
        model = nn.Sequential(torch.compile(Pair(), backend="eager"))
        found = {one.fqn: one for one in predict_coverage(model)}
        assert found["0"].seen is None
        assert found["0.a"].reason is Reason.COMPILED
        assert found["0.a"].why == "hooks do not fire inside the compiled module '0'"

    def test_the_inside_of_a_module_compiled_in_place_is_hidden(self) -> None:
        """The module itself is called from outside."""
        model = nn.Sequential(Pair())
        model[0].compile(backend="eager")
        assert [one.reason for one in predict_coverage(model)] == [None, None, *[Reason.COMPILED] * 2]

    @scripting
    @pytest.mark.parametrize("make", [torch.jit.script, lambda model: torch.jit.trace(model, torch.ones(1, 2))])
    def test_the_inside_of_a_scripted_or_traced_module_is_hidden(self, make: Callable[[nn.Module], Any]) -> None:
        """The module itself is called by Python and is not."""
        found = {one.fqn: one for one in predict_coverage(nn.Sequential(make(Plain())))}
        assert found["0"].reason is None
        assert found["0.b"].reason is Reason.SCRIPTED
        assert found["0.b"].inside == "0"

    @scripting
    def test_a_model_that_is_scripted_as_a_whole_is_named_as_such(self) -> None:
        """It has no fqn to name."""
        assert (
            predict_coverage(torch.jit.script(Plain()))[1].why
            == "hooks do not fire inside the model, which is scripted"
        )

    def test_only_the_modules_asked_for_are_told(self) -> None:
        """In the order of the model."""
        model = Pair()
        assert [one.fqn for one in predict_coverage(model, [model.b, model.a])] == ["a", "b"]


class TestInAStep:
    """What an observed step adds."""

    def test_what_is_called_is_seen_with_its_count(self) -> None:
        """Each call counts."""
        found = seen_in_a_step(Pair(lambda m, x: m.b(m.a(m.a(x)))))
        assert [(one.seen, one.calls, one.reason) for one in found.values()] == [
            (True, 1, None),
            (True, 2, None),
            (True, 1, None),
        ]

    def test_a_model_with_adapters_is_seen_outside_its_wrappers(self) -> None:
        """PEFT's inner wrapper calls the model's ``forward``; hooks on the outer one see each call."""
        found = seen_in_a_step(PeftModel(BaseTuner(Pair())))
        assert {fqn: (one.seen, one.reason, one.missed) for fqn, one in found.items()} == dict.fromkeys(
            ("", "a", "b"), (True, None, 0)
        )

    def test_a_forward_that_is_called_directly_is_found(self) -> None:
        """Hooks never fire; the sentence says what to do."""
        found = seen_in_a_step(Pair(lambda m, x: m.b(m.a.forward(x))))
        assert (found["a"].seen, found["a"].reason, found["a"].missed) == (False, Reason.DIRECT, 1)
        assert "call the module itself" in found["a"].why
        assert found["b"].reason is None

    def test_a_module_may_be_seen_in_a_part_of_its_runs(self) -> None:
        """Both counts are kept."""
        found = seen_in_a_step(Pair(lambda m, x: m.b(m.a(m.a.forward(m.a(x))))))["a"]
        assert (found.seen, found.calls, found.missed, found.reason) == (True, 2, 1, Reason.DIRECT)

    def test_a_forward_that_calls_its_base_class_is_one_call(self) -> None:
        """``super().forward`` is a part of it."""

        class Derived(Plain):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x)

        model = nn.Sequential(Derived(), Plain())
        assert [one.reason for one in seen_in_a_step(model).values()] == [None] * 7

    def test_a_decorated_forward_is_known_by_what_it_decorates(self) -> None:
        """Called or run directly; methods under the same decorator are no ``forward``."""

        class Frozen(nn.Module):
            @torch.no_grad()
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * 2

            @torch.no_grad()
            def helper(self, x: torch.Tensor) -> torch.Tensor:
                return x

        class Outer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.called, self.direct = Frozen(), Frozen()

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.direct.forward(self.called(self.called.helper(x)))

        found = seen_in_a_step(Outer())
        assert found["called"].reason is None
        assert found["direct"].reason is Reason.DIRECT

    @pytest.mark.parametrize("way", ["method", "partial", "closure"])
    def test_a_forward_patched_onto_one_module_is_known(self, way: str) -> None:
        """As other tools patch it; a call is a call, and a direct run that reaches the old one is found."""
        model = Pair(lambda m, x: m.b.forward(m.a(x)))
        for layer in (model.a, model.b):
            old = layer.forward

            def patched(self: nn.Module, x: torch.Tensor, old: Any = old) -> torch.Tensor:
                return old(x)

            ways = {
                "method": patched.__get__(layer),
                "partial": functools.partial(patched, layer),
                "closure": lambda x, old=old: old(x),
            }
            layer.forward = ways[way]  # type: ignore[method-assign]
        with CallCounter(model) as counter:
            step(model)
        assert (counter.called(model.a), counter.direct(model.a)) == (1, 0)
        assert (counter.called(model.b), counter.direct(model.b)) == (0, 1)

    def test_a_call_of_its_own_is_told_from_a_direct_forward(self) -> None:
        """A class may replace ``__call__``, hooks and all."""

        class Own(nn.Linear):
            def __call__(self, x: torch.Tensor) -> torch.Tensor:
                return self.forward(x)

        assert reason_of(nn.Sequential(Own(2, 2)), "0") is Reason.OWN_CALL

    def test_a_call_of_its_own_that_ends_in_the_usual_one_is_seen(self) -> None:
        """``super().__call__`` runs the hooks."""

        class Own(nn.Linear):
            def __call__(self, x: torch.Tensor) -> torch.Tensor:
                return super().__call__(x)

        assert reason_of(nn.Sequential(Own(2, 2)), "0") is None

    def test_a_module_that_the_step_does_not_reach_is_named(self) -> None:
        """It is not called, nor are its weights used."""
        assert reason_of(Pair(lambda m, x: m.a(x)), "b") is Reason.UNCALLED

    def test_weights_that_are_used_without_a_call_are_named(self) -> None:
        """By their gradients."""
        model = Pair(lambda m, x: nn.functional.linear(m.a(x), m.b.weight))
        assert reason_of(model, "b") is Reason.WEIGHTS

    @pytest.mark.parametrize("trains", [True, False])
    def test_the_projection_inside_attention_lends_its_weights(self, trains: bool) -> None:
        """``nn.MultiheadAttention`` never calls ``out_proj``, with gradients and without."""

        class Attends(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.attention = nn.MultiheadAttention(2, 1).requires_grad_(trains)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.attention(x, x, x)[0]

        found = seen_in_a_step(Attends())
        assert found["attention"].reason is None
        assert found["attention.out_proj"].reason is Reason.WEIGHTS

    def test_the_fused_path_of_a_transformer_stays_on(self) -> None:
        """In evaluation without gradients the layers inside are not called, with marks on them as without."""
        model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)).eval().requires_grad_(False)
        found = seen_in_a_step(model, torch.ones(1, 3, 8))
        assert found["0"].reason is None
        assert found["0.linear1"].reason is Reason.UNCALLED

    def test_the_same_transformer_in_training_is_seen(self) -> None:
        """There is no fused path there."""
        model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True))
        assert seen_in_a_step(model, torch.ones(1, 3, 8))["0.linear1"].reason is None

    @scripting
    def test_the_inside_of_a_scripted_module_stays_hidden(self) -> None:
        """And the module itself is seen."""
        model = nn.Sequential(torch.jit.script(Plain()))
        with CallCounter(model) as counter:
            step(model)
        found = {one.fqn: one for one in measure_coverage(model, counter, {"": 1, "0": 1})}
        assert found["0"].seen
        assert found["0.a"].reason is Reason.SCRIPTED

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_recomputed_modules_are_not_taken_for_direct_ones(self, reentrant: bool) -> None:
        """A checkpoint calls the module again, as a module."""
        model = Pair(lambda m, x: checkpoint(lambda y: m.b(m.a(y)), x, use_reentrant=reentrant))
        x = torch.ones(1, 2, requires_grad=True)
        with CallCounter(model) as counter:
            step(model, x)
        assert (counter.called(model.a), counter.direct(model.a)) == (2, 0)

    def test_a_data_parallel_wrapper_is_no_module_of_its_own(self) -> None:
        """What it wraps is called by it."""
        model = nn.DataParallel(Pair())
        with CallCounter(model) as counter:
            step(model)
        assert (counter.called(model.module), counter.direct(model.module)) == (1, 0)

    def test_calls_in_other_threads_are_counted(self) -> None:
        """Threads that start while it counts."""

        def run(model: Pair, x: torch.Tensor) -> torch.Tensor:
            found = []
            thread = threading.Thread(target=lambda: found.append(model.a.forward(x)))
            thread.start()
            thread.join()
            return model.b(found[0])

        model = Pair(run)
        with CallCounter(model) as counter:
            step(model)
        assert counter.direct(model.a) == 1


class TestWatching:
    """It changes nothing, and gives back what it took."""

    def test_nothing_of_the_model_is_touched(self) -> None:
        """No attribute, no hook, no bit of the result."""
        model, x = Pair(), torch.ones(1, 2)
        expected = model(x)
        before = [dict(vars(module)) for module in model.modules()]
        with CallCounter(model):
            found = model(x)
            assert [dict(vars(module)) for module in model.modules()] == before
        assert torch.equal(found, expected)

    def test_the_profile_function_is_given_back_after_an_exception(self) -> None:
        """In this thread and for new ones."""

        def fail(model: Pair, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("the user's")

        model = Pair(fail)
        with pytest.raises(KeyError), CallCounter(model):
            step(model)
        assert sys.getprofile() is None
        assert threading.getprofile() is None

    def test_another_profile_function_is_left_alone(self) -> None:
        """Then nothing is counted, and it says so."""
        heard: list[str] = []

        def other(_frame: Any, event: str, _argument: Any) -> None:
            heard.append(event)

        model = Pair()
        sys.setprofile(other)
        try:
            with CallCounter(model) as counter:
                step(model)
            assert sys.getprofile() is other
        finally:
            sys.setprofile(None)
        assert heard
        assert not counter.active
        assert counter.called(model) == 0


@scripting
class TestScriptedModules:
    """``torch.jit`` refuses hooks by the modules' own methods; they are timed from outside all the same."""

    def test_a_scripted_module_inside_a_model_is_timed(self) -> None:
        """Under its name, forward and backward; its inside is named once."""
        model, sink = nn.Sequential(torch.jit.script(Plain()), nn.ReLU()), ListSink()
        with autoprof.instrument(model, EVERY, sinks=[sink]) as session:
            for _ in range(5):
                step(model)
                session.step()
        timed = {(span.fqn, str(span.phase)) for span in sink.frames[-1].spans}
        assert {("0", "forward"), ("0", "backward"), ("1", "forward")} <= timed
        assert sink.summary is not None
        assert sink.summary.notes == ("model: hooks do not fire inside the scripted module '0': 0.a, 0.b",)

    @pytest.mark.parametrize("ends", ["manual", "auto"])
    def test_a_model_that_is_scripted_as_a_whole_is_timed(self, ends: str) -> None:
        """Also where its calls tell where a step begins; its hooks are gone afterwards."""
        model, sink = torch.jit.script(Plain()), ListSink()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with autoprof.instrument(model, EVERY | {"step": ends}, optimizer=optimizer, sinks=[sink]) as session:
            for _ in range(3):
                step(model)
                optimizer.step()
                if ends == "manual":
                    session.step()
        assert len(sink.frames) == 3
        assert {span.fqn for span in sink.frames[0].spans} >= {""}
        assert not is_marked(model)
        assert not is_marked(model)

    def test_a_scripted_model_computes_the_same_bits(self) -> None:
        """Output and gradients."""
        bare, timed = torch.jit.script(Plain()), torch.jit.script(Plain())
        timed.load_state_dict(bare.state_dict())
        step(bare)
        with autoprof.instrument(timed, EVERY) as session:
            step(timed)
            session.step()
        for one, other in zip(bare.parameters(), timed.parameters(), strict=True):
            assert torch.equal(one.grad, other.grad)
