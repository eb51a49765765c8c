"""The tips of a tuning guide become advice if the run shows that they would help, and only then."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from evidence_builders import MS, evidence_of, finding_of, found
from torch import nn

import autoprof
from autoprof.base.summary import Finding, UnfusedAttention, Work, WorkKind
from autoprof.diagnose import Environment, RunFacts, diagnose, evidence_of_run
from autoprof.diagnose.rules import data_wait

STEP = {"data": 1, "forward": 30, "backward": 60, "optimizer": 4}
GIB = 2**30
FLOPS = {"forward": 100, "backward": 200}


def judged(rule: str, work: Work | None, **changes: Any) -> Any:
    """Return a rule's answer for 20 steps of 100 ms with this work."""
    return finding_of(diagnose(evidence_of(STEP, repeat=20, work=work, **changes)), rule)


def missing(finding: Finding | None) -> str:
    """Return the missing signal of an abstention."""
    assert finding.severity == "info"
    return str(finding.evidence["missing"])


# AMP.


def arithmetic(dtype: str, peak_ms: float, half_ms: float, **changes: Any) -> Work:
    """Make work of one kind with this time at the device's peak."""
    kind = WorkKind(dtype, "matmul", 10**12, peak_ms * MS, half_ms * MS)
    return Work(FLOPS, mfu=0.4, hfu=0.4, peak="a device", kinds=(kind,), **changes)


def test_float32_work_that_fills_the_step_is_found() -> None:
    """The gain is the difference of the times at the two peaks."""
    finding = judged("precision", arithmetic("float32", 60, 8))
    assert finding.severity == "warning"
    assert finding.gain_ns == 52 * MS
    assert "torch.autocast" in finding.next


@pytest.mark.parametrize(("dtype", "peak_ms"), [("bfloat16", 60), ("float16", 60), ("float32", 5)])
def test_work_in_16_bits_or_little_work_is_no_finding(dtype: str, peak_ms: float) -> None:
    """Autocast is on already, or arithmetic takes little of the time."""
    assert judged("precision", arithmetic(dtype, peak_ms, peak_ms)) is None


def test_precision_names_the_missing_signal() -> None:
    """Without counted work or without a peak it abstains."""
    assert missing(judged("precision", None)) == "the FLOPs of a step"
    assert missing(judged("precision", Work(reason="no formula for x"))) == "the FLOPs of a step: no formula for x"
    unknown = replace(arithmetic("float32", 60, 8), mfu=None, peak=None, no_peak="no peak is known for 'x'")
    assert missing(judged("precision", unknown)) == "the device's peak: no peak is known for 'x'"


@pytest.mark.parametrize(
    ("device", "has_bfloat16", "part", "named"),
    [
        ("cpu", False, 0.5, True),
        ("cpu", False, 0.05, False),
        ("cpu", True, 0.5, False),
        ("cpu", None, 0.5, False),
        ("cuda", False, 0.5, False),
    ],
)
def test_bfloat16_is_named_where_the_processor_has_no_instructions_for_it(
    device: str, has_bfloat16: bool | None, part: float, named: bool
) -> None:
    """The gain is half of their part of the model's 90 ms."""
    kinds = (
        WorkKind("bfloat16", "matmul", round(part * 10**6)),
        WorkKind("float32", "conv", round((1 - part) * 10**6)),
    )
    facts = RunFacts(environment=Environment(device, has_bfloat16=has_bfloat16))
    finding = judged("precision", Work(FLOPS, flops_per_s=2e9, kinds=kinds), facts=facts)
    assert (finding.severity == "warning") is named
    assert not named or finding.why.startswith("50.0 % of the products and convolutions are in bfloat16, for which")
    assert not named or finding.gain_ns == 0.5 * 90 * MS / 2


# FlashAttention.


def written(flops: int, *, by_sdpa: bool = False) -> Work:
    """Make work of which so much of the forward's 100 is attention written out."""
    return Work(FLOPS, attention=(UnfusedAttention(flops, 3, "blocks.0.attn", by_sdpa),))


def test_unfused_attention_is_named_with_its_module() -> None:
    """The first of its modules, and how many more."""
    finding = judged("attention", written(40), clock="device")
    assert finding.name == "blocks.0.attn"
    assert finding.gain_ns is None
    assert "2 more modules" in finding.why
    assert "scaled_dot_product_attention instead" in finding.next


def test_fused_or_short_attention_is_no_finding() -> None:
    """No product of scores was counted, or they are a small part of the work."""
    assert judged("attention", Work(FLOPS), clock="device") is None
    assert judged("attention", written(5), clock="device") is None


def test_attention_is_judged_on_devices_with_counted_work_only() -> None:
    """On a CPU either form may be the faster."""
    assert missing(judged("attention", written(40))) == "a device's clock"
    assert missing(judged("attention", None, clock="device")) == "the FLOPs of a step"


def notes(work: Work | None = None, **facts: Any) -> str:
    """Return the notes of 20 steps with this work and these facts."""
    return " ".join(diagnose(evidence_of(STEP, repeat=20, work=work, facts=RunFacts(**facts))).notes)


def test_the_environment_of_a_run_is_saved_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is read when the session is opened, and a saved run is judged with it."""
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    model = nn.Sequential(nn.Linear(4, 4))
    config = {"output": str(tmp_path), "sinks": {"jsonl": {}}, "step": "manual"}
    with autoprof.instrument(model, config) as session:
        monkeypatch.delenv("CUDA_LAUNCH_BLOCKING")
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            session.step()
    run = next(tmp_path.rglob("run.json")).parent
    read = evidence_of_run(autoprof.read_run(run)).facts.environment
    measured = {
        "threads": torch.get_num_threads(),
        "cores": read.cores,
        "machine_cores": os.cpu_count(),
        "has_bfloat16": read.has_bfloat16,
    }
    assert read == Environment("cpu", 2, debug=("CUDA_LAUNCH_BLOCKING=1",), **measured)
    assert read.cores


# Threads.


@pytest.mark.parametrize(("ranks", "threads", "advised"), [(None, 16, 4), (2, 4, 2), (None, 4, None), (4, 1, None)])
def test_more_threads_than_processors_are_a_note(ranks: int | None, threads: int, advised: int | None) -> None:
    """Those of all ranks of the machine together, on four processors."""
    environment = Environment("cpu", threads=threads, cores=4, machine_cores=4, local_ranks=ranks)
    finding = finding_of(
        diagnose(evidence_of({"forward": 90}, repeat=20, facts=RunFacts(environment=environment))), "torch-threads"
    )
    assert (None if finding is None else (finding.severity, finding.next.partition(",")[0])) == (
        None if advised is None else ("note", f"torch.set_num_threads({advised})")
    )


def test_facts_of_other_versions_are_left_out() -> None:
    """The others go to JSON and back."""
    saved = json.loads(json.dumps(RunFacts(collections=3).to_dict()))
    assert RunFacts.from_dict({**saved, "gone": None}) == RunFacts(collections=3)


# Worker processes.


@pytest.mark.parametrize(("starts", "change"), [(8, "loader.persistent_workers"), (0, "loader.num_workers")])
def test_restarts_of_workers_are_evidence_of_the_wait(starts: int, change: str) -> None:
    """They are named with the batches between two starts, and keeping the workers is the experiment."""
    loader = {"workers": 2, "fetches": 56, "unready": 50} | ({"starts": 8, "start_ns": 800 * MS} if starts else {})
    finding = finding_of(diagnose(evidence_of({"data": 40, "forward": 50}, repeat=20, loader=loader)), "data-wait")
    text = "2 loader workers started again about every 8 batches, 100.0 ms until the first batch of each start"
    assert (text in finding.why) is (starts > 0)
    assert data_wait.RULE.experiment_for(finding).change == change


@pytest.mark.parametrize(("starts", "rules"), [(20, ["data-wait"]), (0, ["jitter"])])
def test_starts_of_workers_are_the_cause_of_steps_that_are_long_in_other_phases_too(
    starts: int, rules: list[str]
) -> None:
    """The workers compete for the processors, so that the forward of these steps is longer as well."""
    usual = {"data": 0.1, "forward": 20.0, "backward": 20.0, "step": 41.0}
    long = {"data": 80.1, "forward": 60.0, "backward": 20.0, "step": 161.0}
    loader = {"workers": 2, "fetches": 60, "unready": 20}
    loader |= {"starts": starts, "start_ns": starts * 80 * MS} if starts else {}
    run = diagnose(evidence_of(*(long if at % 4 == 0 else usual for at in range(1, 81)), loader=loader))
    assert found(run) == rules
    finding = finding_of(run, rules[0])
    assert ("persistent_workers=True: the workers are then started once" in finding.next) is (starts > 0)
    assert finding.why.startswith("training waits 20.0 ms (28.2 % of the step) for its batch") is (starts > 0)
