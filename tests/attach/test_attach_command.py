"""``autoprof attach`` on other processes: the report comes to the command, and the training goes on unchanged."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import LIMIT_S, wait_until

import autoprof
from autoprof.errors import AutoprofError
from autoprof.frontends.attach.exchange import place, process_folder
from autoprof.frontends.attach.injection import pass_request
from autoprof.frontends.attach.process import Process, find_process

ROOT = str(Path(autoprof.__file__).parents[1])
TRAIN = """
import os, select, sys, torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters())
print("trains", flush=True)
steps = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    optimizer.zero_grad()
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
    steps += 1
    if steps == 50:
        print("fifty", flush=True)
print("ended well", flush=True)
sys.exit(7)
"""
LISTEN = "from autoprof.frontends.attach import listener; listener.begin()\n"
ENVIRONMENT = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}


def start(folder: Path, program: str, **variables: str) -> "subprocess.Popen[str]":
    """Start a program; it trains until its standard input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**ENVIRONMENT, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line_of(process: "subprocess.Popen[str]") -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def command(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of autoprof to its end."""
    return subprocess.run(
        [sys.executable, "-m", "autoprof", *arguments],
        cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip


def attach(folder: Path, target: "subprocess.Popen[str]") -> "subprocess.Popen[str]":
    """Start a command, and return it when it records."""
    attached = subprocess.Popen(
        [sys.executable, "-m", "autoprof", "attach", str(target.pid)],
        cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert attached.stderr is not None
    assert "recording" in attached.stderr.readline()
    return attached


def started(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Yield a process that trains and can be asked: by its listener, or from Python 3.14 on as it is."""
    process = start(folder, ("" if sys.version_info >= (3, 14) else LISTEN) + TRAIN)
    assert line_of(process) == "trains"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def target(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process of the test's own."""
    yield from started(tmp_path)


@pytest.fixture(scope="module")
def going_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.Popen[str]"]:
    """A process that several commands record, one after the other."""
    for process in started(tmp_path_factory.mktemp("training")):
        yield process
        ends_well(process)


def ends_well(process: "subprocess.Popen[str]") -> None:
    """The training has its own output, errors and exit status."""
    output, errors = process.communicate(timeout=LIMIT_S)
    assert output.split("\n")[-2] == "ended well"
    assert (errors, process.returncode) == ("", 7)


def test_the_report_of_some_steps_comes_to_the_command(tmp_path: Path, going_on: "subprocess.Popen[str]") -> None:
    """Files lie below the folder of the command, and the training goes on to its own end."""
    (tmp_path / "mine").mkdir()
    done = command(tmp_path / "mine", "attach", str(going_on.pid), "--steps", "40")
    assert done.returncode == 0, done.stderr
    assert f"recording process {going_on.pid}; files in runs/" in done.stderr
    assert "detached; there stay" in done.stderr
    assert "Sequential" in done.stdout or "forward" in done.stdout
    [run] = [one for one in (tmp_path / "mine" / "runs").iterdir() if not one.is_symlink()]
    assert autoprof.read_run(run).summary is not None
    assert done.stdout.endswith(f"\nruns/{run.name}\n")


def test_ctrl_c_at_the_command_prints_the_report(tmp_path: Path, going_on: "subprocess.Popen[str]") -> None:
    """And so does the end of its terminal."""
    for number in (signal.SIGINT, signal.SIGHUP):
        attached = attach(tmp_path, going_on)
        attached.send_signal(number)
        output, errors = attached.communicate(timeout=LIMIT_S)
        assert (attached.returncode, "detached; there stay" in errors) == (0, True)
        assert output
        assert not [*place(os.getuid()).glob(f"{attached.pid}-*")]


def test_detach_ends_the_session_of_a_command_that_was_killed(
    tmp_path: Path, going_on: "subprocess.Popen[str]"
) -> None:
    """The training is recorded until then."""
    attached = attach(tmp_path, going_on)
    attached.kill()
    attached.communicate()
    assert command(tmp_path, "attach", str(going_on.pid)).stderr.endswith("autoprof detach ends it\n")
    done = command(tmp_path, "detach", str(going_on.pid))
    assert (done.returncode, f"process {going_on.pid} is detached" in done.stderr) == (0, True)
    again = command(tmp_path, "detach", str(going_on.pid))
    assert again.stderr == f"detach: {going_on.pid}: autoprof attach has opened no session in it\n"


def test_detach_waits_for_no_process_that_has_not_taken_the_request(
    tmp_path: Path, target: "subprocess.Popen[str]"
) -> None:
    """It is stopped; when it goes on it finds no request."""
    target.send_signal(signal.SIGSTOP)
    attached = subprocess.Popen(
        [sys.executable, "-m", "autoprof", "attach", str(target.pid), "--wait", "600"],
        cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: any(place(os.getuid()).glob(f"{attached.pid}-*/{target.pid}-*/request.json")), "the request")
    attached.kill()
    attached.communicate()
    done = command(tmp_path, "detach", str(target.pid), "--wait", "600")
    assert (done.returncode, done.stderr) == (
        0,
        f"autoprof detach: process {target.pid} had no open session, and opens none\n",
    )
    target.send_signal(signal.SIGCONT)
    ends_well(target)


def test_a_training_that_ends_first_prints_its_report_to_the_command(
    tmp_path: Path, target: "subprocess.Popen[str]"
) -> None:
    """Its own exit status stays."""
    attached = attach(tmp_path, target)
    ends_well(target)
    output, errors = attached.communicate(timeout=LIMIT_S)
    assert (attached.returncode, f"process {target.pid} has ended" in errors) == (0, True)
    assert output


@pytest.mark.parametrize(
    "listens",
    [True, pytest.param(False, marks=pytest.mark.skipif(sys.version_info < (3, 14), reason="needs Python 3.14"))],
)
def test_a_blocked_main_thread_is_said(tmp_path: Path, listens: bool) -> None:
    """Injected code runs between two instructions of the main thread; where a listener arms, no step ends.

    The command has given up: when the thread goes on, nothing happens.
    """
    program = "import sys, torch; print('trains', flush=True); sys.stdin.read(); print('goes on'); sys.exit(7)"
    blocked = start(tmp_path, LISTEN * listens + program)
    assert line_of(blocked) == "trains"
    done = command(tmp_path, "attach", str(blocked.pid), "--wait", "0.5")
    assert done.returncode == 2
    problem = "no optimizer made a step in 0.5 s" if listens else "its main thread executes no Python code now"
    assert done.stderr.startswith(f"attach: {blocked.pid}: {problem}")
    assert done.stderr.endswith("; nothing was changed in it\n")
    output, errors = blocked.communicate(timeout=LIMIT_S)
    assert (output, errors, blocked.returncode) == ("goes on\n", "", 7)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_training_as_without_a_session(
    tmp_path: Path, target: "subprocess.Popen[str]", number: signal.Signals
) -> None:
    """The command has the report, the process its own end."""
    attached = attach(tmp_path, target)
    target.send_signal(number)
    target.communicate(timeout=LIMIT_S)
    output, _ = attached.communicate(timeout=LIMIT_S)
    assert (target.returncode, attached.returncode) == (-number, 0)
    assert output


@pytest.mark.parametrize(
    ("pid", "problem"),
    [
        ("999999999", "there is no process of this number; pgrep -af python lists some"),
        ("1x", "'1x' is not a number above 0"),
    ],
)
def test_a_wrong_number_is_said(tmp_path: Path, pid: str, problem: str) -> None:
    """With what to do."""
    done = command(tmp_path, "attach", pid)
    assert (done.returncode, problem in done.stderr) == (2, True)


def test_another_program_than_python_is_said(tmp_path: Path) -> None:
    """Its interpreter is not one of Python's."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        done = command(tmp_path, "attach", str(other.pid))
        assert other.stdin is not None
        other.stdin.close()
    assert done.returncode == 2
    assert done.stderr.endswith("; allowed: a process of Python\n")


@pytest.mark.skipif(sys.version_info < (3, 14), reason="needs Python 3.14")
def test_disabled_debugging_is_said(tmp_path: Path) -> None:
    """Python's own error has no hint."""
    closed = start(tmp_path, TRAIN, PYTHON_DISABLE_REMOTE_DEBUG="1")
    assert line_of(closed) == "trains"
    done = command(tmp_path, "attach", str(closed.pid))
    closed.communicate(timeout=LIMIT_S)
    assert done.returncode == 2
    assert "was started with PYTHON_DISABLE_REMOTE_DEBUG" in done.stderr


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("PermissionError: [Errno 1] Operation not permitted", "the system forbids it"),
        ("RuntimeError: Can't find the main thread", "has just ended"),
        ("RuntimeError: something else", "RuntimeError: something else"),
    ],
)
def test_errors_of_python_are_translated(tmp_path: Path, error: str, reason: str) -> None:
    """With the way that needs no permission."""
    python = tmp_path / "python3.14"
    python.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"print('cpython 3 14') if 'version_info' in sys.argv[-1] else sys.exit({error!r})\n"
    )
    python.chmod(0o755)
    request = tmp_path / "request.json"
    with pytest.raises(AutoprofError, match=f"^attach: 1: {reason}.*AUTOPROF_ATTACH=1"):
        pass_request(Process(1, 0, os.getuid(), str(python)), request)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="needs a Python before 3.14")
def test_a_python_that_does_not_listen_is_said(tmp_path: Path) -> None:
    """With the variable that would have made it listen."""
    silent = start(tmp_path, "import sys; print('trains', flush=True); sys.stdin.read()")
    assert line_of(silent) == "trains"
    done = command(tmp_path, "attach", str(silent.pid))
    silent.communicate(timeout=LIMIT_S)
    assert done.returncode == 2
    assert "AUTOPROF_ATTACH=1" in done.stderr


def test_a_command_whose_folder_is_gone_is_said(tmp_path: Path, going_on: "subprocess.Popen[str]") -> None:
    """Its runs would lie there."""
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"cd {gone} && rmdir {gone} && exec {sys.executable} -m autoprof attach {going_on.pid}"
    done = subprocess.run(["bash", "-c", program], env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stderr == "attach: the working directory is gone; change to another, which gets the runs\n"


def test_all_ranks_of_a_job_begin_at_the_same_step(tmp_path: Path) -> None:
    """Those below the launcher that have a rank; the number of a step is the same in each."""
    program = tmp_path / "rank.py"
    program.write_text(LISTEN + RANK)
    launcher = start(
        tmp_path,
        "import os, subprocess, sys\n"
        f"ranks = [subprocess.Popen([sys.executable, {str(program)!r}], stdin=subprocess.PIPE, "
        "env={**os.environ, 'RANK': str(one), 'WORLD_SIZE': '2'}) for one in range(2)]\n"
        "sys.stdin.read()\n"
        "for one in ranks: one.stdin.close()\n"
        "print([one.wait() for one in ranks])\n",
        MEETING=str(tmp_path / "meeting"),
        PYTHONPATH=os.pathsep.join([ROOT, str(Path(__file__).parents[1])]),
    )
    assert {line_of(launcher), line_of(launcher)} == {"trains"}
    done = command(tmp_path, "attach", "--job", str(launcher.pid), "--steps", "30")
    output, errors = launcher.communicate(timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert "recording 2 ranks" in done.stderr
    assert output.split("\n")[-2] == "[0, 0]", errors
    run = autoprof.read_run(next(one for one in (tmp_path / "runs").iterdir() if not one.is_symlink()))
    assert run.ranks == [0, 1] or list(run.ranks) == [0, 1]


RANK = """
import os, select, sys, torch
import torch.distributed as dist
from gloo_ranks import join_group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

store = join_group(os.environ["MEETING"], int(os.environ["RANK"]), 2)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
os.write(1, b"trains\\n")
going = torch.ones(1)
while going.item():
    optimizer.zero_grad()
    model(torch.randn(4, 16)).sum().backward()
    optimizer.step()
    going.fill_(not select.select([sys.stdin], [], [], 0)[0])
    dist.all_reduce(going, op=dist.ReduceOp.MIN)
dist.destroy_process_group()
"""


def test_the_folder_of_a_listener_is_gone_with_its_process(tmp_path: Path, target: "subprocess.Popen[str]") -> None:
    """Folders of killed processes are removed by the next listener."""
    folder = process_folder(target.pid, os.getuid())
    listens = folder.exists()
    ends_well(target)
    wait_until(lambda: not folder.exists(), "the listener's end")
    assert listens == (sys.version_info < (3, 14))


def test_a_process_of_another_user_is_refused(target: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch) -> None:
    """Root is, too: it would execute that user's interpreter."""
    user = os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(AutoprofError, match=rf"belongs to another user; run the command as user {user}$"):
        find_process(target.pid)
