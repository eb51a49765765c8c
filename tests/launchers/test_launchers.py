"""The launchers, for real: two ranks each, one folder, one display, and the slow rank named.

``make launchers`` runs these, some minutes; a launcher that is not installed is skipped. Programs that record
themselves and programs that ``autoprof run`` records are started in the same ways.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
RUN = ("-m", "autoprof", "run")
PYTHON = sys.executable
VERDICT = r"straggler: (\w+/)?middle(/layer)? backward on rank 1"

pytestmark = pytest.mark.launchers


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a shell in which no launcher has started this."""
    launched = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "AUTOPROF")
    folders = (ROOT, ROOT / "tests", PROGRAMS)
    path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {name: value for name, value in os.environ.items() if name not in launched}
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **more}


def finish(processes: list[subprocess.Popen[str]]) -> str:
    """Wait for processes, which must end well; return what they wrote."""
    texts = [process.communicate(timeout=400)[0] for process in processes]
    text = "".join(texts)
    assert [process.returncode for process in processes] == [0] * len(processes), text
    return re.sub(r"\x1b\[\d+m(\([^)]*\)\x1b\[0m ?)?", "", text)


def start(folder: Path, command: list[str], **variables: str) -> subprocess.Popen[str]:
    """Start a command in a folder, its output and errors in one text."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, env=environment(**variables), text=True, **streams)  # type: ignore[call-overload, no-any-return]


def check(folder: Path, text: str) -> None:
    """Check the run's folder, the one display on rank 0, the verdict, and the records of both ranks."""
    (run,) = (folder / "runs").iterdir()
    assert sorted(path.name for path in run.glob("rank*")) == ["rank0", "rank1"], text
    info = json.loads((run / "run.json").read_text("utf-8"))
    assert (info["rank"], info["world_size"]) == (0, 2)
    assert text.count("all figures: ") == 1, text
    assert re.search(VERDICT, " ".join(text.split())), text
    assert len(list(run.glob("rank*/steps.jsonl"))) == 2


def need(*packages: str) -> None:
    """Skip a launcher that is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")


TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ACCELERATE = [PYTHON, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
ACCELERATE += ["--main_process_port", "0"]  # the system chooses one
DEEPSPEED = [PYTHON, "-m", "deepspeed.launcher.runner", "--num_gpus", "2"]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([*TORCHRUN, str(PROGRAMS / "ddp.py")], id="records itself"),
        pytest.param([*TORCHRUN, *RUN, str(PROGRAMS / "ddp.py"), "--unchanged"], id="autoprof run inside"),
        pytest.param([PYTHON, *RUN, *TORCHRUN, str(PROGRAMS / "ddp.py"), "--unchanged"], id="autoprof run outside"),
    ],
)
def test_torchrun(command: list[str], tmp_path: Path) -> None:
    """``autoprof run`` under torchrun, and torchrun under ``autoprof run``."""
    check(tmp_path, finish([start(tmp_path, command)]))


OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""A store of its own for each start: in one that all share, gloo may find the addresses of the start before."""


def test_a_restart_of_torchrun_is_a_run_of_its_own(tmp_path: Path) -> None:
    """A rank fails after 30 steps; both starts are compared and keep their folders."""
    command = [*TORCHRUN, "--max-restarts", "1", str(PROGRAMS / "elastic.py")]
    text = finish([start(tmp_path, command, **OWN_STORE)])
    first, again = sorted((tmp_path / "runs").iterdir())
    assert again.name == f"{first.name}-restart1"
    assert [sorted(path.name for path in run.glob("rank*")) for run in (first, again)] == [["rank0", "rank1"]] * 2
    assert re.findall(r"autoprof: (\d+) steps", text) == ["30", "40"]
    assert len(re.findall(VERDICT, " ".join(text.split()))) == 2


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([*ACCELERATE, str(PROGRAMS / "accelerated.py")], id="records itself"),
        pytest.param([*ACCELERATE, *RUN, str(PROGRAMS / "accelerated.py"), "--unchanged"], id="autoprof run"),
    ],
)
def test_accelerate_launch(command: list[str], tmp_path: Path) -> None:
    """On CPUs it starts several ranks as if they had GPUs."""
    need("accelerate")
    check(tmp_path, finish([start(tmp_path, command)]))


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([*DEEPSPEED, str(PROGRAMS / "ddp.py")], id="records itself"),
        pytest.param(
            [*DEEPSPEED, "--module", "autoprof", "run", str(PROGRAMS / "ddp.py"), "--unchanged"], id="autoprof run"
        ),
    ],
)
def test_deepspeed(command: list[str], tmp_path: Path) -> None:
    """Its launcher gives each program an option of its own."""
    need("deepspeed")
    check(tmp_path, finish([start(tmp_path, command, DS_ACCELERATOR="cpu")]))


@pytest.mark.parametrize("unchanged", [False, True], ids=["records itself", "autoprof run"])
def test_variables_of_slurm(unchanged: bool, tmp_path: Path) -> None:
    """``srun`` starts the ranks one by one; the variables are those of its tasks."""
    program = str(PROGRAMS / "slurm.py")
    command = [PYTHON, *RUN, program, "--unchanged"] if unchanged else [PYTHON, program]
    tasks = [
        start(
            tmp_path, command, MEETING=str(tmp_path / "meeting"), SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank),
            SLURM_NTASKS="2", SLURM_STEP_NUM_TASKS="2", SLURM_JOB_ID="417", SLURM_STEP_ID="0",
        )
        for rank in range(2)
    ]  # fmt: skip
    check(tmp_path, finish(tasks))


@pytest.mark.parametrize("unchanged", [False, True], ids=["records itself", "autoprof run"])
def test_spawn(unchanged: bool, tmp_path: Path) -> None:
    """No variable says which rank a process is: the process group does."""
    program = str(PROGRAMS / "spawn.py")
    command = [PYTHON, *RUN, program, "--unchanged"] if unchanged else [PYTHON, program]
    check(tmp_path, finish([start(tmp_path, command)]))


def test_ray(tmp_path: Path) -> None:
    """Workers of ``ray.train``, which Ray's own processes start."""
    need("ray")
    program = str(PROGRAMS / "ray_workers.py")
    check(tmp_path, finish([start(tmp_path, [PYTHON, program], RAY_USAGE_STATS_ENABLED="0")]))


def test_ray_under_autoprof_run(tmp_path: Path) -> None:
    """Ray kills its workers at the end, without a report and with the last seconds; each rank's last state is there."""
    need("ray")
    command = [PYTHON, *RUN, str(PROGRAMS / "ray_workers.py"), "--unchanged"]
    finish([start(tmp_path, command, RAY_USAGE_STATS_ENABLED="0")])
    (run,) = (tmp_path / "runs").iterdir()
    assert sorted(path.name for path in run.glob("rank*")) == ["rank0", "rank1"]
    assert "The last state of each rank" in finish([start(tmp_path, [PYTHON, "-m", "autoprof", "show"])])
