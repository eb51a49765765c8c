"""Helper processes are no children of the program: it may wait for all of its children, whatever they are."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoprof._process import detached
from autoprof._process.detached import DetachedProcess
from autoprof._process.signals import DeferSignals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")

ECHO = "import os, sys; os.write(1, os.read(0, 100) + b' and ' + sys.argv[1].encode())"
WAIT = "import os; os.read(0, 1)"


def _start(code: str, *arguments: str, stdout: int = subprocess.DEVNULL) -> DetachedProcess:
    return DetachedProcess([sys.executable, "-c", code, *arguments], stdout=stdout)


def test_it_is_no_child() -> None:
    """Another process is its parent, and it ends with its standard input."""
    process = _start(WAIT)
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    assert not process.wait(0)
    process.stdin.close()
    assert process.wait(60)


def test_its_arguments_and_its_input_are_those_given(tmp_path: Path) -> None:
    """Whatever characters they are made of: no shell reads them."""
    with (tmp_path / "out").open("wb") as out:
        process = _start(ECHO, "$HOME '\"; exit #", stdout=out.fileno())
    process.stdin.write(b"a word")
    process.stdin.close()
    assert process.wait(60)
    assert (tmp_path / "out").read_bytes() == b"a word and $HOME '\"; exit #"


def test_one_that_has_ended_gets_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id may be that of another process by now."""
    process = _start(WAIT)
    process.kill()
    assert process.wait(60)
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    process.terminate()
    assert killed == []
    process.stdin.close()


def test_a_program_with_thousands_of_open_files_ends_it_as_well() -> None:
    """``select`` takes no file numbers above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this process may open too few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while opened[-1] < 1024:
            opened.append(os.dup(opened[0]))
        process = _start(WAIT)
        assert not process.wait(0)
        process.terminate()
        assert process.wait(60)
        process.stdin.close()
    finally:
        for file in opened:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_shell_it_is_a_child_that_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No zombie stays."""
    monkeypatch.setattr(detached, "_SHELL", "/no/such/shell")
    process = _start(WAIT)
    assert os.waitpid(process.pid, os.WNOHANG) == (0, 0)
    process.stdin.close()
    assert process.wait(60)
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


@pytest.mark.parametrize("other", [False, True], ids=["alone", "beside a child of the program"])
def test_the_end_of_the_shell_is_no_event_of_the_programs(other: bool) -> None:
    """The end of a child of the program's own in the same moment still is one."""
    calls: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda number, _frame: calls.append(number))
    try:
        with DeferSignals():
            pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ) if other else 0
            if pid:
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            process = _start(WAIT)
        assert len(calls) == other
        if pid:
            os.waitpid(pid, 0)
        process.stdin.close()
        assert process.wait(60)
    finally:
        signal.signal(signal.SIGCHLD, before)
