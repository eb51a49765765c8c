"""The code samples of the document of the log inspector, word for word but for the import, on our table and figure."""

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from autoprof.frontends.cli import main
from autoprof.logs import load_logs, plot_metrics

READING = """
records = []
for line in path.read_text(encoding="utf-8").splitlines():
    try:
        records.append(json.loads(line))
    except json.JSONDecodeError:
        continue
df = pd.DataFrame(records)
"""

DRAWING = """
df["step"] = range(1, len(df) + 1)
fig, axes = plt.subplots(2, 1, figsize=(8, 6))
axes[0].plot(df["step"], df["loss"], label="loss")
axes[1].plot(df["step"], df["throughput"], color="orange", label="throughput")
plt.tight_layout(); plt.savefig("training_metrics.png")
"""

RECORD = '{"loss": 2.345, "throughput": 512.3, "step_time_s": 0.124, "lr": 1.2e-5}'


SAMPLING = """
import subprocess, time, json
util = subprocess.check_output(
    ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
).decode().strip().splitlines()
gpu_util = list(map(int, util))  # 多卡时为多行
print(json.dumps({"loss": loss, "throughput": th, "gpu_util": gpu_util}))
"""

UTILISATION = """
if "gpu_util" in df.columns:
    # 展示均值或各卡箱线图
    df["gpu_util_mean"] = df["gpu_util"].apply(lambda xs: sum(xs)/len(xs) if isinstance(xs, list) else xs)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The 50 records of the old script's ``sample_log.jsonl``, with foreign lines between them."""
    records = [{"loss": 2.5 / (1 + at / 10), "throughput": 500.0 + at % 7, "lr": 1e-5 * at} for at in range(50)]
    lines = [json.dumps(record) for record in records]
    lines[10:10] = ["Loading the data ...", '{"loss": 1.0, "thr']
    path = tmp_path / "sample_log.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _titles(figure: Any) -> list[str]:
    return [title for axes in figure.axes if (title := axes.get_title(loc="left"))]


def test_the_table_has_what_the_old_reader_had(log: Path) -> None:
    """Its code and ``load_logs`` give the same rows and values; lines that are no JSON are skipped by both."""
    space: dict[str, Any] = {"path": log, "json": json, "pd": pd}
    exec(READING, space)
    ours, theirs = load_logs(log), space["df"]
    assert len(ours) == len(theirs) == 50
    for name in theirs.columns:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-15)
    assert ours.attrs["files"][0]["skipped"] == 2


def test_the_old_drawing_code_runs_on_the_table(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``df["step"] = …`` and the two plots, saved under the old name."""
    monkeypatch.chdir(log.parent)
    with _without_a_screen():
        space: dict[str, Any] = {"df": load_logs(log), "plt": plt}
        exec(DRAWING, space)
    assert list(space["axes"][0].lines[0].get_xdata()) == list(range(1, 51))
    assert Path("training_metrics.png").read_bytes().startswith(b"\x89PNG")


def test_both_lines_of_the_old_script_draw_what_it_drew(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``plot_metrics(load_logs(path))``: loss and throughput over step, in ``training_metrics.png``."""
    monkeypatch.chdir(log.parent)
    df = load_logs(log)
    figure = plot_metrics(df)
    assert _titles(figure)[:2] == ["Loss", "Throughput"]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), df["loss"])
    assert list(figure.axes[0].lines[0].get_xdata()) == list(range(1, 51))
    assert Path("training_metrics.png").exists()


def test_the_recommended_record_is_read(tmp_path: Path) -> None:
    """Each of its four fields is a column under its own name, with its value."""
    path = tmp_path / "log.jsonl"
    path.write_text(f"{RECORD}\n{RECORD}\n", encoding="utf-8")
    df = load_logs(path)
    assert {name: df[name][1] for name in json.loads(RECORD)} == pytest.approx(json.loads(RECORD))


def test_what_the_utilisation_sample_prints_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``nvidia-smi`` of two cards, here a program of that name: a column a card, their mean, and a plot."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '90\\n70\\n'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for at in range(3):
            exec(SAMPLING, {"loss": 2.0 - at / 10, "th": 500.0})
    (tmp_path / "log.jsonl").write_text(printed.getvalue(), encoding="utf-8")
    df = load_logs(tmp_path / "log.jsonl")
    assert (list(df["gpu_util_0"]), list(df["gpu_util_1"])) == ([90] * 3, [70] * 3)
    exec(UTILISATION, {"df": df})
    assert list(df["gpu_util_mean"]) == pytest.approx([80.0] * 3)
    assert "GPU utilisation" in _titles(plot_metrics(df, None))


def test_the_command_prints_the_path_of_the_figure(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the script did: the name of the file, once it is written."""
    output = log.parent / "training_metrics.png"
    assert main(["inspect", str(log), "-o", str(output)]) == 0
    assert output.exists()
    assert f"figure: {output}" in capsys.readouterr().out


@contextlib.contextmanager
def _without_a_screen() -> Any:
    before = mpl.get_backend()
    plt.switch_backend("agg")
    try:
        yield
    finally:
        plt.close("all")
        plt.switch_backend(before)
