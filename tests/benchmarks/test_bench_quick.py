"""A whole quick run, and the parts that it leaves out, each as short as it can be."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.options import parse

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


@pytest.fixture
def _threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("_threads")
def test_a_quick_run_prints_a_table_and_writes_samples_and_a_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every sample is in the JSON, and the JSON renders to the same table again."""
    main(["--quick", "--models", "layers", "--rounds", "2", "--parts", "models", "--output", str(tmp_path)])
    table = capsys.readouterr().out
    results = json.loads((tmp_path / "benchmarks.json").read_text())
    measured = results["workloads"]["layers"]
    assert set(measured["blocks"]) | set(measured["errors"]) == set(measured["labels"])
    assert all(len(blocks) == 2 and blocks[0]["steps_ns"] for blocks in measured["blocks"].values())
    assert results["machine"]["torch"] == torch.__version__
    assert (tmp_path / "benchmarks.png").read_bytes().startswith(b"\x89PNG")
    assert "floor: forward hooks + node prehooks" in table
    assert "bound of" in table

    main(["--report", str(tmp_path / "benchmarks.json"), "--output", str(tmp_path / "again")])
    assert capsys.readouterr().out.splitlines()[:-2] == table.splitlines()[:-2]


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names that are known."""
    with pytest.raises(SystemExit):
        parse(["--models", "layer"])
    assert "allowed: layers, reference, gpt" in capsys.readouterr().err
