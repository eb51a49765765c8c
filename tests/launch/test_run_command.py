"""``autoprof run`` changes nothing that a program can see of its start, its end or its processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forking_python import ForkingPython

import autoprof
from autoprof.base.process.ranks import LAUNCHERS
from autoprof.frontends.cli.run import LAUNCHER_VARIABLES

ROOT = Path(autoprof.__file__).parents[1]
PYTHON = [sys.executable]
RUN = [*PYTHON, "-m", "autoprof", "run"]
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


@pytest.fixture
def quick_run(forking_python: ForkingPython) -> list[str]:
    """``autoprof run`` in a Python that has imported torch: for programs that train, and say nothing of their start."""
    return [*forking_python.command, *RUN[1:]]


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


def test_the_option_of_a_launcher_reaches_the_program(tmp_path: Path) -> None:
    """DeepSpeed's launcher puts it behind the name of the module, and so before the command."""
    program = write(tmp_path, "import sys; print(sys.argv[1:])")
    ours = call([*RUN[:3], "--local_rank=1", "run"], tmp_path, program, "--epochs", "3")
    assert (ours.stdout.strip(), ours.returncode) == ("['--local_rank=1', '--epochs', '3']", 0)


@pytest.mark.parametrize(
    "end",
    [
        "raise SystemExit(3)",
        "def f(): raise ValueError('wrong')\nf()",
        "import signal, os; os.kill(os.getpid(), signal.SIGTERM)",
    ],
)
def test_the_program_ends_as_with_python(tmp_path: Path, end: str) -> None:
    """Exit status, signal and traceback are the same."""
    program = write(tmp_path, f"print('begun', flush=True)\n{end}\n")
    bare, ours = call(PYTHON, tmp_path, program), call(RUN, tmp_path, program)
    assert (ours.returncode, ours.stdout) == (bare.returncode, bare.stdout)
    assert lines_of_program(ours) == bare.stderr.splitlines()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("", "call autoprof.instrument(model)"),
        ("import torch\ntorch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1)", "it made no step"),
    ],
    ids=["no optimizer", "no step"],
)
def test_a_program_that_never_trains_is_named_in_one_line(
    tmp_path: Path, quick_run: list[str], program: str, reason: str
) -> None:
    """The line says why nothing was recorded; status and standard output are those of the program."""
    result = call(quick_run, tmp_path, write(tmp_path, f"print('hello')\n{program}"))
    assert (result.returncode, result.stdout) == (0, "hello\n")
    assert result.stderr.startswith(NOTHING)
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


OWN_SESSION = "autoprof run: the program opens a session itself"
CALLBACK = """
from autoprof.integrations._training import Training
training = Training(None, ())
training.begin(model, [optimizer])
"""


def test_a_session_of_the_program_is_not_reported_as_nothing(tmp_path: Path, quick_run: list[str]) -> None:
    """A framework callback records: one line says whose configuration applies."""
    program = TRAIN.replace("for step", f"{CALLBACK}\nfor step") + "    training.end_step()\ntraining.end()\n"
    result = call(quick_run, tmp_path, write(tmp_path, program), "6")
    assert result.returncode == 0, result.stderr
    assert "autoprof: 6 steps" in result.stdout
    assert NOTHING not in result.stderr
    assert result.stderr.count(OWN_SESSION) == 1


def test_the_ranks_of_every_launcher_are_named_by_it() -> None:
    """The command gives a run a name of its own only where no launcher started it once for each rank."""
    for launcher in LAUNCHERS:
        assert {launcher.rank, launcher.world_size} & set(LAUNCHER_VARIABLES), launcher.name


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


def test_a_wrong_configuration_ends_before_the_program_begins(tmp_path: Path, quick_run: list[str]) -> None:
    """The file is checked first: a typo costs no training."""
    config = write(tmp_path, "targets:\n  - mach: a\n", "rules.yaml")
    result = call(quick_run, tmp_path, "--config", config, write(tmp_path, "print('begun')"))
    assert (result.returncode, result.stdout) == (2, "")
    assert "rules.yaml:2" in result.stderr


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


@pytest.mark.parametrize("option", ["-I", "-S"])
def test_an_option_of_python_that_prevents_recording_is_an_error(tmp_path: Path, option: str) -> None:
    """The message names the option."""
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from autoprof.frontends.cli import main; sys.exit(main())"
    result = call([sys.executable, option, "-c", code, str(ROOT), "run"], tmp_path, write(tmp_path, "print(1)"))
    assert result.returncode == 2
    assert option in result.stderr


def test_a_training_has_a_report_on_the_standard_error_only(tmp_path: Path, quick_run: list[str]) -> None:
    """The standard output is the program's; the run's folder is below the folder of the command."""
    program = write(tmp_path, TRAIN.replace("import sys", "import os, sys; os.chdir('/')\nimport sys"))
    result = call(quick_run, tmp_path, "--output", "out", program, "6")
    assert result.stdout.splitlines() == [f"step {step}" for step in range(6)]
    assert "autoprof: 6 steps" in result.stderr
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_a_program_with_a_session_of_its_own_makes_another_optimizer(tmp_path: Path, quick_run: list[str]) -> None:
    """After a part is unfrozen: the command and the session both notice optimizers that are made."""
    text = """
import torch, autoprof
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
session = autoprof.instrument(model, {"sinks": {}}, optimizer=optimizer)
for step in range(12):
    if step == 6:
        optimizer = torch.optim.Adam(model.parameters())
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
session.close()
print(session.summary().all_steps)
"""
    result = call(quick_run, tmp_path, write(tmp_path, text))
    assert (result.returncode, result.stdout) == (0, "12\n"), result.stderr


def test_a_training_that_is_terminated_keeps_its_records(tmp_path: Path, quick_run: list[str]) -> None:
    """SIGTERM ends the process as without autoprof, after the session is closed."""
    end = "    if step == 20: __import__('os').kill(__import__('os').getpid(), __import__('signal').SIGTERM)\n"
    result = call(quick_run, tmp_path, write(tmp_path, TRAIN + end), str(10**12))
    assert result.returncode == -signal.SIGTERM
    assert result.stdout.splitlines()[-1] == "step 20"
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["ended"] == "SIGTERM"


def test_a_training_that_is_interrupted_ends_by_the_signal(tmp_path: Path, quick_run: list[str]) -> None:
    """The report leaves the exit status of Ctrl-C."""
    program = write(tmp_path, TRAIN + "\nraise KeyboardInterrupt\n")
    ours = call(quick_run, tmp_path, program, "4")
    assert ours.returncode == -signal.SIGINT
    assert "autoprof: 4 steps" in ours.stderr


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


def test_processes_that_train_have_a_run_each(tmp_path: Path, quick_run: list[str]) -> None:
    """Processes of multiprocessing are recorded to their end; the one that started them has nothing to report.

    autoprof takes children for trainings that have used the processor for a second.
    """
    work = TRAIN.replace("\n", "\n    ").replace("int(sys.argv[1])", "4")
    work += "\n    while os.times().user < 1.1: sum(range(10_000))"
    program = write(
        tmp_path,
        f"import os, torch, multiprocessing\ndef work():{work}\nif __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('fork')\n"
        "    processes = [context.Process(target=work) for _ in range(2)]\n"
        "    for process in processes: process.start()\n"
        "    for process in processes: process.join()\n",
    )
    result = call(quick_run, tmp_path, program)
    assert result.returncode == 0
    assert result.stderr.count("recording the training of Linear") == 2
    assert result.stderr.count("autoprof: 4 steps") == 2
    assert NOTHING not in result.stderr
