"""Programs whose model changes, is copied or is instrumented again."""

from __future__ import annotations

import copy
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

import autoprof

from ..clock import CLOCK, EXCLUDED
from ..judge import Judge
from ..parts import Root, Sleep, batches, sgd, train, train_step, two_layers
from ..registry import program

STEPS = 60
PHASES = ("forward", "backward", "optimizer")


class Model(Root):
    """A body and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body: nn.Module = Sleep(2, 3, "body")
        self.head: nn.Module = Sleep(1, 2, "head")

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x))


@program("steps", "federated averaging: only deep copies of the instrumented model train, and the report says so")
def federated_rounds() -> Judge:
    model = Model()
    session = autoprof.instrument(model)
    for _ in range(4):
        states = []
        for _client in range(3):
            client = copy.deepcopy(model)
            optimizer = sgd(client)
            for batch in batches(6):
                train_step(client, optimizer, batch)
            states.append(client.state_dict())
        model.load_state_dict({key: torch.stack([one[key] for one in states]).mean(0) for key in states[0]})
    session.close()
    return Judge(session).says("copies train", r"cop(y|ies)").silent()


@program("report", "five folds, each with a session that nobody closes: the models do not stay alive")
def folds_without_close() -> Judge:
    models = []
    session: Any = None
    for _ in range(5):
        model = Model()
        optimizer = sgd(model)
        session = autoprof.instrument(model, optimizer=optimizer)
        CLOCK.start()
        for batch in batches(20):
            train_step(model, optimizer, batch)
            CLOCK.step()
        models.append(weakref.ref(model))
        last, model, optimizer = session, None, None  # type: ignore[assignment]
        gc.collect()
    alive = sum(one() is not None for one in models)
    last.close()
    return Judge(session).steps().is_true("models alive", alive <= 1, alive, "at most the last")


@program("report", "a notebook's cell runs twice: the first session closes with a note, the second one records")
def cell_run_twice() -> Judge:
    model = Model()
    optimizer = sgd(model)
    first = autoprof.instrument(model, optimizer=optimizer)
    for batch in batches(STEPS):
        train_step(model, optimizer, batch)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    judge = Judge(session).steps().phases(*PHASES).step_time()
    earlier = first.summary()
    found = earlier.steps + earlier.warmup_steps + earlier.unsampled_steps
    return judge.is_true("steps of the first session", abs(found - STEPS) <= 1, found, str(STEPS))


@program("targets", "a child replaced after 20 steps: its rows go on, or a note says that it is not recorded")
def replaced_child() -> Judge:
    model = Model()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(80)):
        if number == 20:
            model.body = nn.Sequential(Sleep(2, 3, "body"))
            optimizer.add_param_group({"params": list(model.body.parameters())})
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    judge = Judge(session).steps().phases(*PHASES).step_time().excludes_nothing().closes()
    text = judge.all_text
    judge.is_true(
        "no failure", "StopIteration" not in text and "Error" not in text, "an exception's name in the report"
    )
    return judge.says("the body's time or a note", r"\bbody\b")


@program("targets", "the head is swapped for another class count after 20 steps, as in fine-tuning")
def swapped_head() -> Judge:
    model = Model()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(80)):
        if number == 20:
            model.head = Sleep(4, 5, "head")
            optimizer = sgd(model)
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES).step_time().excludes_nothing().says("the head", r"\bhead\b")


@program("targets", "prepare_qat in an open session: new modules get rows or a note, nothing of autoprof is copied")
def quantisation_prepared() -> Judge:
    model: Any = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), Sleep(2, 3, "sleep"))
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(60)):
        if number == 20:
            model.train()
            model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
            model[2].qconfig = None
            torch.ao.quantization.prepare_qat(model, inplace=True)
            optimizer = sgd(model)
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    judge = Judge(session).steps().excludes_nothing().closes()
    hooks = sum(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.modules() if one is model[2])
    return judge.is_true("hooks left", hooks == 0, hooks, "0")


@program("targets", "symbolic_trace in an open session: the traced copy works, and nothing of autoprof is in it")
def traced_in_an_open_session() -> Judge:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    equal = True
    for number, batch in enumerate(batches(60)):
        if number in (1, 20):
            traced = torch.fx.symbolic_trace(model)
            equal = equal and torch.equal(traced(batch), model(batch)) and "autoprof" not in traced.code
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    return Judge(session).steps(within=3).is_true("the traced model", equal).closes()


class Growing(Root):
    """A model of blocks to which the program adds."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Sleep(2, 3, "first")])
        self.head = Sleep(1, 2, "head")

    def forward(self, x: Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def backward(loss: Tensor) -> None:
    """Make a backward pass, charged to its phase."""
    with CLOCK.phase("backward"):
        loss.backward()  # type: ignore[no-untyped-call]


@program("steps", "a model that grows by a block after 30 steps, with a new optimizer; the first one was named")
def grown_by_a_block() -> Judge:
    model = Growing()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(100)):
        if number == 30:
            model.blocks.append(Sleep(3, 4, "grown"))
            optimizer = sgd(model)
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES).step_time().says("the new block is named", r"blocks[./]1")


@program("excluded", "validation under inference_mode without eval(), between the backward pass and the update")
def validation_between_backward_and_update() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(80), 1):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        backward(loss)
        if number % 20 == 0:
            with CLOCK.phase(EXCLUDED), torch.inference_mode():
                for other in batches(10):
                    model(other)
        optimizer.step()
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES).step_time()


@program("steps", "forward and backward run in an executor, the loader and step() in the main thread")
def computed_in_an_executor() -> Judge:
    model = two_layers()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)

    def compute(batch: Tensor) -> None:
        loss = model(batch).square().mean()
        backward(loss)

    CLOCK.start()
    with ThreadPoolExecutor(1) as pool:
        for batch in batches(60):
            pool.submit(compute, batch).result()
            optimizer.step()
            optimizer.zero_grad()
            CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES).step_time()


class Branches(nn.Module):
    """Two branches that run in a pool of threads."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = Sleep(6, 1, "left"), Sleep(10, 1, "right")
        self.pool = ThreadPoolExecutor(2)

    def forward(self, x: Tensor) -> Any:
        parts = [self.pool.submit(branch, x) for branch in (self.left, self.right)]
        left, right = (part.result() for part in parts)
        return left + right


@program("targets", "branches of one model run in a pool of threads: the report says where their time is")
def branches_in_threads() -> Judge:
    model = Branches()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    train(model, optimizer, 60)
    session.close()
    judge = Judge(session).steps().named(r"Branches").says("other threads", r"calls on other threads are not recorded")
    return judge.says("the branches", r"left, right").silent()
