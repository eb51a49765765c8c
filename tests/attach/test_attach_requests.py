"""A request opens a session at the end of an optimizer step, on the thread that trains, and closes it at another."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from attach_requests import Command, is_armed
from attached import hooks_of, open_sessions, optimizer_hooks
from torch import nn
from torch.optim import optimizer as torch_optimizer
from waiting import LIMIT_S

import autoprof
from autoprof.base.process import lifecycle
from autoprof.frontends.attach import exchange, opening
from autoprof.frontends.attach.arming import receive

Step = Callable[[], float]


def training(model: nn.Module | None = None) -> Step:
    """Return a function that trains one step."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)) if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """A command, whose session is closed at the end."""
    made = Command(tmp_path)
    yield made
    made.request.write(made.exchange).unlink()
    training()()
    assert not open_sessions()
    assert not is_armed()


def test_a_request_opens_a_session_at_the_next_step_end(command: Command) -> None:
    """Until then one method of torch's optimizers is replaced, and nothing is attached."""
    step = training()
    step()
    command.ask()
    assert (command.states(), open_sessions()) == (["armed"], [])
    step()
    assert command.states() == ["armed", "recording"]
    assert len(open_sessions()) == 1


def test_a_withdrawn_request_closes_the_session_at_the_next_step_end(command: Command) -> None:
    """The report is printed for the command; hooks, functions and finders are those of before."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    step, finders = training(model), sys.meta_path[:]
    step()
    before = [hooks_of(one) for one in model.modules()], optimizer_hooks(), signal.getsignal(signal.SIGTERM)
    command.ask()
    for _ in range(12):
        step()
    command.withdraw()
    assert command.states() == ["armed", "recording"]
    step()
    assert command.states() == ["armed", "recording", "closed"]
    assert ([hooks_of(one) for one in model.modules()], optimizer_hooks(), signal.getsignal(signal.SIGTERM)) == before
    assert (sys.meta_path, open_sessions(), is_armed()) == (finders, [], False)
    assert "forward" in command.text()


def test_a_number_of_steps_closes_the_session(tmp_path: Path) -> None:
    """The step in whose end it opens is cut, and not one of them."""
    step, command = training(), Command(tmp_path, steps=5)
    command.ask()
    for _ in range(6):
        step()
        assert "closed" not in command.states()
    step()
    assert command.states()[-1] == "closed"
    [folder] = [one for one in (tmp_path / "runs").iterdir() if not one.is_symlink()]
    summary = autoprof.read_run(folder).summary
    assert summary is not None
    assert summary.all_steps == 6


def test_a_request_that_is_withdrawn_before_a_step_ends_opens_nothing(command: Command) -> None:
    """The replaced method is torch's own again after that step."""
    step = training()
    command.ask()
    command.withdraw()
    step()
    assert (command.states(), open_sessions(), is_armed()) == (["armed", "closed"], [], False)


def test_the_thread_that_trains_opens_the_session(command: Command) -> None:
    """The request came on another."""
    step = training()
    command.ask()
    trained = threading.Thread(target=lambda: [step() for _ in range(4)])
    trained.start()
    trained.join(LIMIT_S)
    [session] = open_sessions()
    assert command.states() == ["armed", "recording"]
    assert session.steps == 3
    command.withdraw()
    trained = threading.Thread(target=step)
    trained.start()
    trained.join(LIMIT_S)
    assert command.states()[-1] == "closed"


@pytest.mark.parametrize("register", ["register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"])
def test_a_request_inside_a_hook_of_the_program_changes_no_table_that_torch_reads(
    command: Command, register: str
) -> None:
    """Torch reads its hooks one after the other while one of them runs."""
    step, called = training(), list[int]()

    def hook(*_args: object) -> None:
        called.append(1)
        if len(called) == 1:
            command.ask()

    handles = [getattr(torch_optimizer, register)(hook) for _ in range(2)]
    try:
        for _ in range(3):
            step()
    finally:
        for handle in handles:
            handle.remove()
    assert len(called) == 6
    assert command.states() == ["armed", "recording"]


def test_models_of_a_frozen_heap_are_found(command: Command) -> None:
    """``gc.freeze`` hides them from the collector: they are seen in the next step, where they are called."""
    step, call = training(), vars(nn.Module)["__call__"]
    gc.freeze()
    command.ask()
    step()
    assert command.states() == ["armed"]
    step()
    assert command.states() == ["armed", "recording"]
    assert vars(nn.Module)["__call__"] is call
    [session] = open_sessions()
    assert len(session.targets) == 4


def test_a_second_request_is_refused(command: Command, tmp_path: Path) -> None:
    """One command at a time."""
    step, second = training(), Command(tmp_path / "second")
    command.ask()
    step()
    second.ask()
    assert second.states() == ["failed"]
    assert second.reasons() == ["a session is attached to it already; autoprof detach ends it"]


def test_an_open_session_is_left_alone(command: Command) -> None:
    """The program, or autoprof run, records already."""
    model = nn.Sequential(nn.Linear(4, 1))
    step = training(model)
    with autoprof.instrument(model, {"sinks": {}}) as session:
        command.ask()
        step()
        assert open_sessions() == [session]
    assert command.reasons() == ["a session is open in it already: the program, or autoprof run, records it"]


def test_a_session_of_the_program_ends_that_of_the_command(command: Command) -> None:
    """As it ends that of autoprof run."""
    model = nn.Sequential(nn.Linear(4, 1))
    step = training(model)
    command.ask()
    step()
    with autoprof.instrument(model, {"sinks": {}}) as session:
        step()
        assert open_sessions() == [session]
    assert command.states()[-1] == "closed"
    lifecycle._program_instruments = False


def test_parameters_of_no_module_are_a_reason(command: Command) -> None:
    """The program goes on."""
    one = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([one], lr=0.1)
    command.ask()
    for _ in range(2):  # in the second one, models of a heap that is frozen would have been called
        one.sum().backward()
        optimizer.step()
    assert command.reasons() == ["an optimizer made a step, but no nn.Module holds its parameters"]
    assert not is_armed()


def test_a_failure_of_ours_stays_ours(command: Command) -> None:
    """A configuration that is gone meanwhile, for example."""
    command.request = command.request._replace(config="gone.yaml")
    step = training()
    command.ask()
    step()
    assert command.states() == ["armed", "failed"]
    assert "gone.yaml" in command.reasons()[0]


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("", "no training yet: it has not imported torch; try again later"),
        (
            "import importlib.machinery, types; torch = sys.modules['torch'] = types.ModuleType('torch');"
            "torch.__spec__ = importlib.machinery.ModuleSpec('torch', None); torch.__spec__._initializing = True",
            "no training yet: it has not imported torch; try again later",
        ),
    ],
)
def test_a_process_without_torch_has_no_training(tmp_path: Path, before: str, reason: str) -> None:
    """Nothing is imported there; half of torch is as good as none."""
    command = Command(tmp_path)
    path = command.request.write(command.exchange)
    program = (
        f"import sys; {before}\nbefore = set(sys.modules)\n"
        f"from autoprof.frontends.attach.arming import receive; receive({str(path)!r})\n"
        "assert not {'torch.nn', 'numpy', 'wrapt', 'pydantic'} & (set(sys.modules) - before)"
    )
    root = str(Path(autoprof.__file__).parents[1])
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": root})
    assert (command.states(), command.reasons()) == (["failed"], [reason])


def test_a_fork_records_nothing(command: Command) -> None:
    """Its parent's request is not its own. (A backward pass may fail in a fork of a process that has made one.)"""
    optimizer = torch.optim.SGD(nn.Linear(4, 1).parameters(), lr=0.1)
    command.ask()
    pid = os.fork()
    if not pid:
        status = 7
        try:
            optimizer.step()
            status = int(is_armed())
        finally:
            os._exit(status)  # no exception may leave the fork: it would go on with the tests
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert command.states() == ["armed"]


def test_a_signal_while_the_session_opens_is_handled_after_it(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any that the program has a handler for: its exception leaves the step, and no import or set-up swallows it."""

    class Alarm(Exception):
        pass

    def ring(*_args: object) -> None:
        raise Alarm

    step, find = training(), opening.find_trained

    def interrupted(*args: Any) -> Any:
        signal.raise_signal(signal.SIGALRM)
        signal.raise_signal(signal.SIGALRM)
        return find(*args)

    monkeypatch.setattr(opening, "find_trained", interrupted)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        command.ask()
        with pytest.raises(Alarm):
            step()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert command.states() == ["armed", "recording"]


def test_folders_of_killed_commands_are_removed_but_of_open_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session goes on without its command: its request must stay."""
    monkeypatch.setattr(exchange, "PLACE", str(tmp_path / "autoprof-{uid}"))
    place, own = tmp_path / "autoprof-7", exchange.process_folder(os.getpid(), 7)
    for folder in (own, place / "999999999-1", place / "999999999-2" / f"{os.getpid()}-x"):
        folder.mkdir(parents=True)
    (place / "999999999-2" / f"{os.getpid()}-x" / exchange.REQUEST).touch()
    exchange.remove_stale(7)
    assert sorted(one.name for one in place.iterdir()) == sorted(["999999999-2", own.name])


def test_a_full_disk_ends_no_training(
    command: Command, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Replies and texts are lost, and the program's output stays its own."""
    step, write = training(), os.write

    def full(file: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{file}").startswith(str(command.exchange)):
            raise OSError(28, "No space left on device")
        return write(file, data)

    command.ask()
    monkeypatch.setattr(os, "write", full)
    for _ in range(6):
        step()
    command.withdraw()
    step()
    monkeypatch.undo()
    assert command.states() == ["armed"]
    assert not is_armed()
    assert capfd.readouterr() == ("", "")


def test_a_failure_while_steps_are_followed_ends_no_training(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a folder that may not be read any more."""
    step = training()
    command.ask()

    def fails(path: Path) -> bool:
        raise PermissionError(13, "no")

    monkeypatch.setattr(Path, "exists", fails)
    step()
    monkeypatch.undo()
    assert (command.states(), is_armed()) == (["armed", "failed"], False)


def test_the_folder_that_a_request_added_leaves_the_path(command: Command, tmp_path: Path) -> None:
    """Where the program's environment has no autoprof, that of the command is imported."""
    step, added = training(), str(tmp_path / "packages")
    sys.path.append(added)
    receive(str(command.request.write(command.exchange)), added)
    step()
    assert added in sys.path
    command.withdraw()
    step()
    assert added not in sys.path
