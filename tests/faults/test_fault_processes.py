"""What ends a process, or should not: it ends or goes on as it would have without autoprof, and its files are whole."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import Children, ends_alike, saved
from forking_python import ForkingPython
from kept_steps import kept_steps

import autoprof


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    """What runs programs in processes of their own."""
    made = Children()
    yield made
    made.close()


EVENTS = {
    "an error in forward": "model[0].forward = lambda x: 1 / 0\nstep(i)",
    "an error in backward": (
        "class Bad(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x): return x * 1\n"
        "    @staticmethod\n"
        "    def backward(ctx, grad): raise ValueError('mine')\n"
        "model[1].forward = Bad.apply\nstep(i)"
    ),
    "an error in a hook of the user's": "model[0].register_forward_hook(lambda *_: {}['mine'])\nstep(i)",
    "out of memory on the device": "def forward(x): raise torch.cuda.OutOfMemoryError('CUDA out of memory.')\n"
    "model[0].forward = forward\nstep(i)",
    "out of memory on the host": "model[0].forward = lambda x: bytearray(1 << 62)\nstep(i)",
    "an exit inside forward": "model[0].forward = lambda x: sys.exit(7)\nstep(i)",
    "a hard exit": "os._exit(9)",
}


@pytest.mark.parametrize("name", EVENTS)
def test_the_run_dies_of_it_as_it_would_have(children: Children, name: str, tmp_path: Path) -> None:
    """Same status, same output, same last words; what was recorded is kept."""
    bare, found = children.both(tmp_path, EVENTS[name])
    ends_alike(bare, found)
    assert bare.returncode != 0
    info, steps = saved(tmp_path / "with")
    assert steps[:2] == [1, 2]
    assert len(steps) <= 4
    if name != "a hard exit":
        assert steps == [1, 2, 3, 4]
        assert info["ended"] == "exit"


CAUGHT = {
    "an out of memory that is caught": """
        def fails(x): raise torch.cuda.OutOfMemoryError('CUDA out of memory.')
        forward, model[0].forward = model[0].forward, fails
        try: step(i)
        except torch.cuda.OutOfMemoryError: model[0].forward = forward
    """,
    "the run's folder is deleted": "shutil.rmtree('runs') if INSTRUMENTED else None",
    "the working directory is left and deleted": """
        home = os.getcwd()
        os.mkdir('elsewhere'); os.chdir('elsewhere'); os.rmdir('../elsewhere')
    """,
    "files may not grow any more": """
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    """,
    "no more files may be opened": """
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    """,
    "a handler of the user's for SIGTERM": """
        signal.signal(signal.SIGTERM, lambda *_: print("mine"))
        os.kill(os.getpid(), signal.SIGTERM)
    """,
    "a fork that exits": """
        pid = os.fork()
        if not pid: sys.exit(0)
        os.waitpid(pid, 0)
    """,
    "standard error is closed": "os.close(2)",
    "standard output is a full device": "os.dup2(os.open('/dev/full', os.O_WRONLY), 1); os.dup2(2, 1)",
}


@pytest.mark.parametrize("name", CAUGHT)
def test_the_run_goes_on_as_it_would_have(children: Children, name: str, tmp_path: Path) -> None:
    """Six steps, its own output, status 0."""
    bare, found = children.both(tmp_path, CAUGHT[name])
    ends_alike(bare, found)
    assert found.returncode == 0
    if name == "the run's folder is deleted":
        return
    _, steps = saved(tmp_path / "with")
    if name == "files may not grow any more":  # the last lines may still be on their way
        assert steps in ([1, 2], [1, 2, 3], [1, 2, 3, 4])
    else:
        assert steps == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("sinks", ["{}", "{'console': {}, 'memory_plot': {}}"])
def test_a_session_starts_no_child_that_the_program_would_notice(
    children: Children, sinks: str, tmp_path: Path
) -> None:
    """A program that waits for all of its children would wait for ever."""
    before = """
    os.environ['MPLCONFIGDIR'] = os.getcwd()  # matplotlib has no list of fonts, as in a fresh home, and asks fc-list
    """
    event = """
    try: print("a child", os.waitpid(-1, os.WNOHANG))
    except ChildProcessError: print("no child")
    """
    bare, found = children.both(tmp_path, event, before=before, sinks=sinks)
    assert bare.stdout == "no child\nwent on\n"
    assert "a child" not in found.stdout
    assert found.stdout.startswith(bare.stdout)


@pytest.mark.parametrize("stream", ["a reader that is gone", "a full device"])
def test_a_console_that_cannot_print_does_not_change_the_exit_status(
    children: Children, stream: str, tmp_path: Path
) -> None:
    """What we could not print must not lie in the program's buffer, where its own last flush would fail on it."""
    before = {
        "a reader that is gone": "ends = os.pipe(); os.close(ends[0]); os.dup2(ends[1], 1)",
        "a full device": "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)",
    }[stream]
    after = "sys.exit(0)"  # before the program prints anything itself, which would fail of itself
    bare, found = children.both(tmp_path, "pass", before=before, after=after, sinks="{'console': {'every': 1}}")
    assert bare.returncode == 0
    assert found.returncode == 0, found.stderr
    said = {"a reader that is gone": 0, "a full device": 1}  # who has left wants to know nothing more
    assert found.stderr.count("[Errno 28]") == said[stream]
    assert "Exception ignored" not in found.stderr


KILL = """
import pathlib, threading
def kill():
    (records,) = pathlib.Path("runs").glob("*/rank0/steps.jsonl")
    while records.read_bytes().count(b"\\n") < {lines}:
        threading.Event().wait(0.001)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=kill, daemon=True).start()
"""


@pytest.mark.parametrize("lines", [4, 20, 60])
def test_kill_at_any_moment_leaves_whole_lines_but_for_the_last_one(
    children: Children, lines: int, tmp_path: Path
) -> None:
    """``kill -9`` while steps are written: the steps are the first ones of the run, and it can be read."""
    found = children.run(tmp_path, KILL.format(lines=lines), instrumented=True, after="while True: step(i)")
    assert found.returncode == -signal.SIGKILL
    (run,) = (tmp_path / "runs").iterdir()
    assert len(kept_steps(run)) >= lines
    assert json.loads((run / "run.json").read_text())["ended"] is None


def test_sigterm_to_a_run_that_trains_in_another_thread_ends_it_as_it_would_have(
    children: Children, tmp_path: Path
) -> None:
    """Only the main thread may put the handler back; the other one is in the middle of its own work, or not."""
    event = """
    import threading
    trains = threading.Event()
    def loop():
        step(i)
        trains.set()
        while True: step(i)
    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    trains.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    thread.join()
    """
    bare, found = children.both(tmp_path, event)
    assert found.returncode == bare.returncode == -signal.SIGTERM
    info, steps = saved(tmp_path / "with")
    assert info["ended"] == "SIGTERM"
    assert steps == list(range(1, len(steps) + 1))


MOMENTS = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = {folders!r}
import torch
torch.set_num_threads(1)
from torch import nn
import autoprof, pytest
from engine_laws import pass_on_each_step
from moments import Strike
pass_on_each_step(pytest.MonkeyPatch())
config = {{
    "targets": [{{"match": ".*"}}], "sample": {{"warmup": 0}}, "flops": "off",
    "sinks": {{"jsonl": {{"flush_s": 0}}, "log": {{}}}},
}}
from autoprof.testing import FakeClock, open_session
with Strike(sys.maxsize, lambda: None):  # a child then imports and parses nothing; after a backward no fork may train
    model = nn.Linear(2, 2)
    session = open_session(model, {{**config, "output": "warm"}}, clock=FakeClock(tick_ns=1))
    model(torch.ones(1, 2))
    session.step()
    session.close()

def child(at, folder):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    strike = Strike(at, lambda: os.kill(os.getpid(), signal.SIGTERM))
    def train():
        model(torch.ones(1, 2)).sum().backward()
        session.step()
    if {phase!r} == "set-up":
        with strike:
            session = open_session(model, {{**config, "output": folder}}, clock=FakeClock(tick_ns=1))
        train()
    else:
        session = open_session(model, {{**config, "output": folder}}, clock=FakeClock(tick_ns=1))
        train()
        if {phase!r} == "step":
            with strike:
                train()
            session.close()
        else:
            with strike:
                session.close()
    return 0 if strike.where else 77

at, ended = 1, None
while ended != 77:
    pid = os.fork()
    if not pid:
        status = 1
        try:
            status = child(at, f"moments/{{at}}")
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(at, ended, flush=True)
    at += {stride}
"""


@pytest.mark.parametrize("stride", [pytest.param(3, marks=pytest.mark.slow), 401])
@pytest.mark.parametrize("phase", ["set-up", "step", "close"])
def test_sigterm_at_any_moment_ends_the_process_with_whole_files(
    phase: str, stride: int, tmp_path: Path, forking_python: ForkingPython
) -> None:
    """At the n-th line of ours, for n over set-up, a step, and close: died of SIGTERM, and the run says so."""
    here = Path(__file__).parent
    code = MOMENTS.format(
        folders=[str(here), str(here.parent), str(here.parent / "engine")], phase=phase, stride=stride
    )
    found = subprocess.run(
        [*forking_python.command, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=True
    )
    ends = [tuple(map(int, line.split())) for line in found.stdout.splitlines()]
    assert ends[-1][1] == 77
    assert len(ends) > 3
    ended = []
    for at, status in ends[:-1]:
        assert status == -signal.SIGTERM, (at, status, found.stderr[-2000:])
        folder = tmp_path / "moments" / str(at)
        for path in folder.iterdir() if folder.exists() else ():
            info = json.loads((path / "run.json").read_text()) if (path / "run.json").exists() else {}
            ended.append(info.get("ended"))
            records = path / "rank0" / "steps.jsonl"
            if phase != "set-up":
                assert records.read_bytes().endswith(b"\n"), at
                steps = [frame.step for frame in autoprof.read_run(path).frames]
                assert steps in ([1], [1, 2]), at
                assert ended[-1] in ("SIGTERM", "closed"), at
    if phase == "step":
        assert set(ended) == {"SIGTERM"}


EXHAUST = """
limits = resource.getrlimit(resource.RLIMIT_AS)
size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (2 << 20), limits[1]))
taken, block = [], 1 << 22
while block >= 1 << 16:
    try: taken.append(bytearray(block))
    except MemoryError: block //= 2
for _ in range(STEPS):
    try:
        step(i)
        taken.append(bytearray(2048))
    except (MemoryError, RuntimeError): pass
taken.clear()
resource.setrlimit(resource.RLIMIT_AS, limits)
"""


def test_a_run_without_address_space_records_no_more_and_goes_on(children: Children, tmp_path: Path) -> None:
    """numpy would end the process where a loop has no buffer; said once, and the run's folder is whole."""
    found = children.run(tmp_path, EXHAUST.replace("STEPS", "3"), instrumented=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "went on\n"
    assert found.stderr.count("recording is off after MemoryError: less than 16 MiB of address space left") == 1
    info, steps = saved(tmp_path)
    assert info["ended"] == "exit"
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= 3
