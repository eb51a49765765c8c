"""Loaders that were not given to the session: recognised, with their worker processes, and unchanged."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, count, everything
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from waiting import wait_until

from autoprof import Phase
from autoprof.base.summary import Summary


def of_torch() -> tuple[Any, ...]:
    """Return the functions of torch that are replaced while a session is open."""
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    return DataLoader.__iter__, iterator.__next__, iterator._next_index


LOADER = of_torch()


class Gated(Dataset):
    """Samples that a worker hands out when the test says so, by a file; without one at once."""

    def __init__(self, gate: Path | None) -> None:
        self.gate = gate

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        if self.gate is not None and index >= 2:
            wait_until(self.gate.exists, "the gate to open")
        return torch.full((2,), float(index))


def model() -> nn.Module:
    """Return a small model."""
    return nn.Sequential(nn.Linear(2, 1))


@pytest.mark.parametrize("step", ["auto", "manual"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_is_recognised_by_itself(step: str, workers: int) -> None:
    """Its batches are those of the bare loader, each fetch is one call; afterwards torch's classes are their own."""
    loader = DataLoader(TensorDataset(torch.arange(8.0).reshape(4, 2)), num_workers=workers)
    expected = [batch[0] for batch in loader]
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    found = []
    with Watched(made, config=everything(step=step), optimizer=optimizer) as watched:
        for (batch,) in loader:
            found.append(batch)
            made(batch).sum().backward()
            optimizer.step()
            if step == "manual":
                watched.step()
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    frames = watched.sink.frames
    for frame in frames:
        check_laws(frame)
    # The fetch that finds the epoch over is a call, too; in auto mode it ends the last step.
    assert [count(frame, Phase.DATA)["Data"] for frame in frames[:4]] == [1, 1, 1, 1]
    assert of_torch() == LOADER


def test_a_loader_given_to_the_session_is_not_counted_twice() -> None:
    """``session.loader`` around a ``DataLoader``: one span a fetch, with no second one inside."""
    loader = DataLoader(TensorDataset(torch.ones(3, 2)))
    with Watched(model()) as watched:
        for _ in watched.session.loader(loader):
            watched.step()
    spans = [span for frame in watched.sink.frames[:3] for span in frame.spans if span.phase is Phase.DATA]
    assert len(spans) == 3
    assert all(span.parent is None and span.calls == 1 for span in spans)


def test_a_loader_on_another_thread_is_no_part_of_the_step() -> None:
    """Prefetching by another package: only the wait of the training thread counts."""
    loader = DataLoader(TensorDataset(torch.ones(3, 2)))
    with Watched(model()) as watched:
        thread = Thread(target=lambda: list(loader))
        thread.start()
        thread.join()
        watched.step()
    assert not count(watched.frames[0], Phase.DATA)


def test_fetches_that_found_nothing_ready_are_counted(tmp_path: Path) -> None:
    """Two workers, held up from the third sample on until the test has asked for it; then all are ready."""
    gate = tmp_path / "gate"
    loader = DataLoader(Gated(gate), num_workers=1, prefetch_factor=6, batch_size=1)
    with Watched(model()) as watched:
        iterator = iter(loader)
        next(iterator)  # the first of an epoch cannot be ready: it is not judged
        _until_ready(iterator)
        next(iterator)  # 2: ready
        opener = Thread(
            target=_open_when, args=(gate, lambda: watched.session._loader_probe._prefetch.counts()["fetches"] == 2)
        )
        opener.start()
        next(iterator)  # 3: not ready, the gate is closed while it is asked for
        opener.join()
        for _ in range(3):
            _until_ready(iterator)
            next(iterator)
        assert next(iterator, None) is None  # the epoch is over: that is no fetch
        watched.step()
        summary = watched.session.summary()
    assert summary.loader == {"workers": 1, "fetches": 5, "unready": 1}
    assert Summary.from_dict(summary.to_dict()).loader == summary.loader


def _open_when(gate: Path, asked: Callable[[], bool]) -> None:
    try:
        wait_until(asked, "the third fetch")
    finally:
        gate.touch()


def _until_ready(iterator: Any) -> None:
    wait_until(lambda: not iterator._data_queue.empty(), "a batch of the worker")


class Counted(Gated):
    """A data set that counts the calls of its length, which may read a file."""

    asked = 0

    def __len__(self) -> int:
        self.asked += 1
        return super().__len__()


def test_a_data_set_is_not_asked_for_its_length() -> None:
    """Beside the calls of the program and of torch."""

    def asked() -> int:
        samples, made = Counted(None), model()
        for batch in DataLoader(samples, batch_size=2):
            made(batch).sum().backward()
        return samples.asked

    alone = asked()
    with Watched(model(), config=everything(step="auto")):
        assert asked() == alone


@pytest.mark.parametrize("persistent", [False, True])
def test_starts_of_workers_are_counted_after_the_first(persistent: bool) -> None:
    """Four epochs start the workers three times again; kept workers are started once."""
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.zeros(3, 2)), num_workers=1, persistent_workers=persistent)
    with Watched(made, config=everything(step="manual"), optimizer=optimizer) as watched:
        for _ in range(4):
            for (batch,) in loader:
                made(batch).sum().backward()
                optimizer.step()
                watched.step()
    counts = watched.session.summary().loader
    assert counts.get("starts", 0) == (0 if persistent else 3)


@pytest.mark.parametrize(("kept", "starts"), [(True, 0), (False, 2)])
def test_the_first_start_of_each_loader_is_needed(kept: bool, starts: int) -> None:
    """Three loaders side by side start once each; one that is made anew in each epoch starts again."""
    made, loaders = model(), list[Any]()
    with Watched(made, config=everything(step="manual")) as watched:
        for _ in range(3):
            loader = DataLoader(TensorDataset(torch.zeros(3, 2)), num_workers=1)
            loaders += [loader] if kept else []
            for (batch,) in loader:
                made(batch).sum().backward()
                watched.step()
            del loader
    assert watched.session.summary().loader.get("starts", 0) == starts
