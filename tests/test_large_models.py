"""Large models: the work of a run grows in proportion to the number of modules, from set-up to the last report."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
from torch import nn

import autoprof
from autoprof.base.frame import Phase, Span
from autoprof.base.stats import Aggregate
from autoprof.base.summary import MemoryRow
from autoprof.diagnose import EvidenceCollector, RunFacts, diagnose
from autoprof.probes.metrics import flop_meter
from autoprof.probes.metrics.flops import FlopCount, FlopKey, Kind
from autoprof.testing import FakeClock, make_frame, open_session

SIZES = (40, 80, 160)
STEPS = 6
DIAGNOSED_STEPS = 12
"""So many that each rule judges the run."""
MANY = 1000
"""Instructions of a function from which its growth is judged."""
PACKAGE = str(Path(autoprof.__file__).parent)


def calls_in(action: Callable[[], object]) -> int:
    """Return the number of calls of autoprof's functions, and of functions in C by them, that an action makes."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"} and frame.f_code.co_filename.startswith(PACKAGE)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


def instructions_in(action: Callable[[], object]) -> Counter[str]:
    """Return how many bytecode instructions each function of autoprof runs in an action."""
    found: Counter[CodeType] = Counter()

    def count(frame: Any, event: str, argument: Any) -> Any:
        if event == "opcode":
            found[frame.f_code] += 1
        return count

    def enter(frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return count

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        action()
    finally:
        sys.settrace(before)
    functions = Counter[str]()
    for code, instructions in found.items():
        functions[f"{Path(code.co_filename).relative_to(PACKAGE)}:{code.co_firstlineno} {code.co_name}"] += instructions
    return functions


def one_matmul_each(model: nn.Module, call: Any, **more: Any) -> FlopCount:
    """Return a count as of a model in which each layer has one product."""
    layers = [fqn for fqn, module in model.named_modules() if isinstance(module, nn.Linear)]
    return FlopCount({FlopKey(fqn, Phase.FORWARD, Kind("float32", "matmul")): 1000 for fqn in layers})


def train(layers: int, output: Path) -> dict[str, int]:
    """Train a chain of layers with a session; return the calls of each part of the run."""
    config = {
        "targets": [{"match": r"\d+"}],
        "step": "manual",
        "sample": {"budget": None, "warmup": 1},
        "sinks": {"console": {}, "log": {}, "jsonl": {}},
        "output": str(output),
    }
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))
    x = torch.ones(1, 2)
    session: Any = None

    def opened() -> None:
        nonlocal session
        session = open_session(model, config, clock=FakeClock())  # a pass is due by the clock, however slow a step is

    def steps() -> None:
        for _ in range(STEPS):
            model(x).sum().backward()
            session.step()

    opening = calls_in(opened)
    return {"opening": opening, "running": calls_in(steps) + calls_in(lambda: session.close())}


def test_the_work_of_a_run_grows_in_proportion_to_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the modules cost twice the further calls; where the work is quadratic, they cost four times as many."""
    monkeypatch.setattr(flop_meter, "count_call", one_matmul_each)
    train(2, tmp_path / "first")  # imports
    small, middle, large = (train(layers, tmp_path / str(layers)) for layers in SIZES)
    growth = {part: (large[part] - middle[part]) / (middle[part] - small[part]) for part in small}
    assert max(growth.values()) < 2.6, growth


def diagnosis_of(layers: int) -> Callable[[], object]:
    """Return the diagnosis of a run with equal layers one after the other, forward and backward, with their bytes."""
    names = [f"block.{number}" for number in range(layers)]
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, DIAGNOSED_STEPS + 1):
        phases = [(name, phase) for phase in (Phase.FORWARD, Phase.BACKWARD) for name in names]
        spans = [Span(name, name, phase, None, 1000 * at, 1000) for at, (name, phase) in enumerate(phases)]
        frame = make_frame(spans, step=step, duration_ns=1000 * len(spans))
        aggregate.add(frame)
        collector.add(frame)
    table = (MemoryRow(None, parameter_bytes=100 * layers), *(MemoryRow(name, parameter_bytes=100) for name in names))
    evidence = collector.evidence(replace(aggregate.summary(), memory_table=table), RunFacts())
    return lambda: diagnose(evidence)


def test_the_work_of_the_diagnosis_grows_in_proportion_to_the_modules() -> None:
    """A loop over all modules inside another one runs four times as many instructions for twice the modules."""
    diagnosis_of(2)()  # imports
    small, middle, large = (instructions_in(diagnosis_of(layers)) for layers in SIZES)
    growth = {
        function: round((count - middle[function]) / max(middle[function] - small[function], 1), 1)
        for function, count in large.items()
        if count > MANY
    }
    assert growth
    assert {function: times for function, times in growth.items() if times > 3.0} == {}
