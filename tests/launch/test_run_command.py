"""``autoprof run`` changes nothing that a program can see of its start, its end or its processes."""

from __future__ import annotations

import argparse
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import autoprof
from autoprof._process.ranks import LAUNCHERS, Launcher
from autoprof.cli.run import LAUNCHER_VARIABLES, _settings

ROOT = Path(autoprof.__file__).parents[1]
PYTHON = [sys.executable]
RUN = [sys.executable, "-m", "autoprof", "run"]
NOTHING = "autoprof run: nothing was recorded:"
FACTS = """
import json, os, sys
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"),
    "spec": __spec__ and __spec__.name, "main": main.__dict__ is globals(), "flags": str(sys.flags), "cwd": os.getcwd(),
    "meta_path": [type(one).__name__ for one in sys.meta_path if "ImportHook" not in str(one)],
    "torch": [name for name in ("torch", "numpy", "autoprof.config") if name in sys.modules],
    "ends": [signal for signal in __import__("signal").valid_signals()
             if __import__("signal").getsignal(signal) not in (0, 1)],
}, default=str))
"""
TRAIN = """
import sys, torch
from torch import nn

model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print("step", step, flush=True)
"""


def call(
    command: list[str], cwd: Path, *arguments: str, stdin: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with this checkout of autoprof."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    environment.pop("AUTOPROF_RUN", None)
    return subprocess.run(
        [*command, *arguments], cwd=cwd, env=environment, input=stdin, capture_output=True, text=True, timeout=300
    )


def write(folder: Path, text: str, name: str = "train.py") -> str:
    """Write a program; return its name."""
    (folder / name).write_text(text)
    return name


def lines_of_program(result: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines of the standard error that are not of ``autoprof run``."""
    return [line for line in result.stderr.splitlines() if not line.startswith("autoprof")]


def test_the_program_starts_as_with_python(tmp_path: Path) -> None:
    """Arguments, paths, flags, ``__main__``, signal handlers and loaded packages are the same."""
    program = write(tmp_path, FACTS)
    options = ["-X", "dev", "-W", "ignore"]
    bare = call([*PYTHON, *options], tmp_path, program, "--config", "x", "-m", "--", "y")
    ours = call([sys.executable, *options, *RUN[1:]], tmp_path, program, "--config", "x", "-m", "--", "y")
    assert json.loads(ours.stdout) == json.loads(bare.stdout)
    assert json.loads(ours.stdout)["torch"] == []


def test_a_module_starts_as_with_python(tmp_path: Path) -> None:
    """``-m package.module`` has the ``__spec__`` and the path of ``python -m``."""
    (tmp_path / "package").mkdir()
    write(tmp_path / "package", "", "__init__.py")
    write(tmp_path / "package", FACTS, "train.py")
    bare = call(PYTHON, tmp_path, "-m", "package.train", "-c", "x")
    ours = call(RUN, tmp_path, "-m", "package.train", "-c", "x")
    assert json.loads(ours.stdout) == json.loads(bare.stdout)


@pytest.mark.parametrize("option", ["--local_rank=1", "--local-rank=1"])
def test_the_option_of_a_launcher_reaches_the_program(tmp_path: Path, option: str) -> None:
    """DeepSpeed's launcher puts it behind the name of the module, and so before the command."""
    program = write(tmp_path, "import sys; print(sys.argv[1:])")
    ours = call([*RUN[:3], option, "run"], tmp_path, program, "--epochs", "3")
    assert (ours.stdout.strip(), ours.returncode) == (str([option, "--epochs", "3"]), 0)
    module = call([*RUN[:3], option, "run"], tmp_path, "-m", "train", "--epochs", "3")
    assert module.stdout.strip() == str([option, "--epochs", "3"])


@pytest.mark.parametrize(
    "end",
    [
        "raise SystemExit",
        "raise SystemExit(3)",
        "raise SystemExit('no data')",
        "raise SystemExit(['a', 1])",
        "import os; os._exit(9)",
        "def f(): raise ValueError('wrong')\nf()",
        "import signal, os; os.kill(os.getpid(), signal.SIGTERM)",
        "raise KeyboardInterrupt",
        "syntax error",
    ],
)
def test_the_program_ends_as_with_python(tmp_path: Path, end: str) -> None:
    """Exit status, signal and traceback are the same."""
    program = write(tmp_path, f"print('begun', flush=True)\n{end}\n")
    bare, ours = call(PYTHON, tmp_path, program), call(RUN, tmp_path, program)
    assert (ours.returncode, ours.stdout) == (bare.returncode, bare.stdout)
    assert lines_of_program(ours) == bare.stderr.splitlines()


def test_a_program_that_never_trains_is_named_in_one_line(tmp_path: Path) -> None:
    """The line says why nothing was recorded; status and standard output are those of the program."""
    result = call(RUN, tmp_path, write(tmp_path, "print('hello')"))
    assert (result.returncode, result.stdout) == (0, "hello\n")
    assert result.stderr.startswith(NOTHING)
    assert result.stderr.count("\n") == 1


def test_an_optimizer_without_a_step_is_named(tmp_path: Path) -> None:
    """A program that makes an optimizer and ends is told apart from one that makes none."""
    program = write(tmp_path, "import torch\ntorch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1)")
    result = call(RUN, tmp_path, program)
    assert result.returncode == 0
    assert "it made no step" in result.stderr


def test_training_by_functions_is_named(tmp_path: Path) -> None:
    """``torch.func`` shows no training: the line says what to call."""
    program = write(
        tmp_path,
        "import torch\nmodel = torch.nn.Linear(1, 1)\nvalues = dict(model.named_parameters())\n"
        "torch.func.grad(lambda v: torch.func.functional_call(model, v, torch.ones(1, 1)).sum())(values)\n",
    )
    result = call(RUN, tmp_path, program)
    assert result.returncode == 0
    assert "call autoprof.instrument(model)" in result.stderr


OWN_SESSION = "autoprof run: the program opens a session itself"
CALLBACK = """
from autoprof.integrations._training import Training
training = Training(None, ())
training.begin(model, [optimizer])
"""


@pytest.mark.parametrize("opens", [CALLBACK, "import autoprof; autoprof.instrument(model)"], ids=["callback", "call"])
def test_a_session_of_the_program_is_not_reported_as_nothing(tmp_path: Path, opens: str) -> None:
    """A framework callback or ``autoprof.instrument`` records: one line says whose configuration applies."""
    end = "    training.end_step()\ntraining.end()\n" if opens is CALLBACK else ""
    result = call(RUN, tmp_path, write(tmp_path, TRAIN.replace("for step", f"{opens}\nfor step") + end), "6")
    assert result.returncode == 0, result.stderr
    assert "autoprof: 6 steps" in result.stdout
    assert NOTHING not in result.stderr
    assert result.stderr.count(OWN_SESSION) == 1


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda one: one.name)
def test_the_ranks_of_every_launcher_are_named_by_it(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command gives a run a name of its own only where no launcher started it once for each rank."""
    for name in LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    arguments = argparse.Namespace(config=None, output=None)
    assert _settings(arguments).name is not None
    monkeypatch.setenv(launcher.rank, "1")
    monkeypatch.setenv(launcher.world_size, "2")
    assert _settings(arguments).name is None


def test_a_command_that_starts_python_is_recorded(tmp_path: Path) -> None:
    """A launcher, here ``sh``, passes the settings on: a training that it starts is found."""
    program = write(tmp_path, TRAIN)
    result = call(RUN, tmp_path, "sh", "-c", f"exec {sys.executable} {program} 4")
    assert result.returncode == 0
    assert "recording the training of Linear" in result.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_no_program_is_an_error(tmp_path: Path) -> None:
    """The message names the allowed forms."""
    result = call(RUN, tmp_path)
    assert result.returncode == 2
    assert "allowed: autoprof run train.py" in result.stderr


def test_a_wrong_configuration_ends_before_the_program_begins(tmp_path: Path) -> None:
    """The file is checked first: a typo costs no training."""
    config = write(tmp_path, "targets:\n  - mach: a\n", "rules.yaml")
    result = call(RUN, tmp_path, "--config", config, write(tmp_path, "print('begun')"))
    assert (result.returncode, result.stdout) == (2, "")
    assert "rules.yaml:2" in result.stderr


def test_a_terminal_is_a_terminal(tmp_path: Path) -> None:
    """``isatty`` holds for the three streams of a program that is started on a terminal."""
    program = write(tmp_path, "import os; print([os.isatty(number) for number in range(3)], flush=True)")
    main, side = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*RUN, program], cwd=tmp_path, env=environment, stdin=side, stdout=side, stderr=side, timeout=60)
    os.close(side)
    shown = os.read(main, 1000)
    os.close(main)
    assert b"[True, True, True]" in shown


def test_objects_of_the_program_travel_to_spawned_processes(tmp_path: Path) -> None:
    """Classes of the script are pickled by the name ``__main__``, and workers import the script."""
    program = write(
        tmp_path,
        "import multiprocessing, pickle\n"
        "class Item:\n    def __init__(self, value): self.value = value\n"
        "def work(item): return item.value + 1\n"
        "if __name__ == '__main__':\n"
        "    print(pickle.loads(pickle.dumps(Item(1))).value, Item.__module__)\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(work, [Item(1), Item(2)]))\n",
    )
    result = call(RUN, tmp_path, program)
    assert result.stdout == "1 __main__\n[2, 3]\n"
    assert lines_of_program(result) == []


def test_the_sitecustomize_of_the_user_still_runs(tmp_path: Path) -> None:
    """A file of that name further down the path is imported, and is the module of that name."""
    site = tmp_path / "site"
    site.mkdir()
    write(site, "print('customized'); value = 7", "sitecustomize.py")
    program = write(tmp_path, "import sitecustomize; print(sitecustomize.value)")
    result = call(RUN, tmp_path, program, PYTHONPATH=os.pathsep.join([str(site), str(ROOT)]))
    assert "customized\n7\n" in result.stdout


def test_switched_off_it_starts_the_program_only(tmp_path: Path) -> None:
    """With ``AUTOPROF=0`` the environment has no settings, and nothing is printed."""
    program = write(tmp_path, "import os; print('AUTOPROF_RUN' in os.environ, os.environ['PYTHONPATH'])")
    result = call(RUN, tmp_path, program, AUTOPROF="0")
    assert result.stdout == f"False {ROOT}\n"
    assert result.stderr == ""


@pytest.mark.parametrize("option", ["-E", "-I", "-S"])
def test_an_option_of_python_that_prevents_recording_is_an_error(tmp_path: Path, option: str) -> None:
    """The message names the option."""
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from autoprof.cli import main; sys.exit(main())"
    result = call([sys.executable, option, "-c", code, str(ROOT), "run"], tmp_path, write(tmp_path, "print(1)"))
    assert result.returncode == 2
    assert option in result.stderr


def test_a_training_has_a_report_on_the_standard_error_only(tmp_path: Path) -> None:
    """The standard output is the program's; the run's folder is below the folder of the command."""
    program = write(tmp_path, TRAIN.replace("import sys", "import os, sys; os.chdir('/')\nimport sys"))
    result = call(RUN, tmp_path, "--output", "out", program, "6")
    assert result.stdout.splitlines() == [f"step {step}" for step in range(6)]
    assert "autoprof: 6 steps" in result.stderr
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_a_training_that_is_terminated_keeps_its_records(tmp_path: Path) -> None:
    """SIGTERM ends the process as without autoprof, after the session is closed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = write(tmp_path, TRAIN.replace("flush=True)", "flush=True); import time; time.sleep(0.01)"))
    with subprocess.Popen(
        [*RUN, program, "100000"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "step 20":
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["ended"] == "SIGTERM"


def test_a_training_that_is_interrupted_ends_by_the_signal(tmp_path: Path) -> None:
    """The report, which loads many modules, leaves the exit status of Ctrl-C."""
    program = write(tmp_path, TRAIN + "\nraise KeyboardInterrupt\n")
    bare, ours = call(PYTHON, tmp_path, program, "4"), call(RUN, tmp_path, program, "4")
    assert ours.returncode == bare.returncode == -signal.SIGINT
    assert "autoprof: 4 steps" in ours.stderr


def test_the_traceback_of_a_training_has_no_frame_of_autoprof(tmp_path: Path) -> None:
    """An error in the first forward, where the search for the model ends, is printed as without autoprof."""
    program = write(tmp_path, TRAIN.replace("torch.ones(2, 4)", "torch.ones(2, 5)"))
    bare, ours = call(PYTHON, tmp_path, program, "3"), call(RUN, tmp_path, program, "3")
    assert ours.returncode == bare.returncode == 1
    assert f"{Path(autoprof.__file__).parent}{os.sep}" not in ours.stderr
    assert bare.stderr.splitlines()[-1] in ours.stderr


@pytest.mark.slow
def test_loader_workers_find_no_training(tmp_path: Path) -> None:
    """Spawned workers of a loader read the script's classes, and print nothing."""
    program = write(
        tmp_path,
        "import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Data(Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, index): return torch.ones(4) * index\n"
        "if __name__ == '__main__':\n"
        "    model = torch.nn.Linear(4, 1)\n    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\n"
        "    for batch in DataLoader(Data(), 2, num_workers=1, multiprocessing_context='spawn'):\n"
        "        optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()\n",
    )
    result = call(RUN, tmp_path, program)
    assert result.returncode == 0
    assert "autoprof: 4 steps" in result.stderr
    assert result.stderr.count("autoprof run:") == 1


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_processes_that_train_have_a_run_each(tmp_path: Path, method: str) -> None:
    """Processes of multiprocessing are recorded to their end; the one that started them has nothing to report."""
    work = TRAIN.replace("\n", "\n    ").replace("int(sys.argv[1])", "4")
    program = write(
        tmp_path,
        f"import torch, multiprocessing\ndef work():{work}\nif __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context('{method}')\n"
        "    processes = [context.Process(target=work) for _ in range(2)]\n"
        "    for process in processes: process.start()\n"
        "    for process in processes: process.join()\n",
    )
    result = call(RUN, tmp_path, program)
    assert result.returncode == 0
    assert result.stderr.count("recording the training of Linear") == 2
    assert result.stderr.count("autoprof: 4 steps") == 2
    assert NOTHING not in result.stderr


DISTRIBUTED = """
import os, sys, torch
from torch import distributed, nn

distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("inside", [True, False], ids=["torchrun -m autoprof run", "autoprof run torchrun"])
def test_the_ranks_of_torchrun_share_a_run(tmp_path: Path, inside: bool) -> None:
    """Each rank finds its own model and steps; the folder has both, and rank 0 prints the report."""
    program = write(tmp_path, DISTRIBUTED)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launcher, *RUN[1:]] if inside else [*RUN, *launcher]
    result = call(command, tmp_path, program, "6")
    assert result.returncode == 0, result.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert {one.name for one in run.iterdir() if one.name.startswith("rank")} == {"rank0", "rank1"}
    assert result.stderr.count("recording the training of DistributedDataParallel") == 1
    assert "autoprof: 6 steps" in result.stderr
