"""``python -m benchmarks.mend``: the mender reads only the explanation, and the page shows what it did."""

import copy
from pathlib import Path
from typing import Any, get_args

import pytest

from autoprof.diagnose import Change
from benchmarks.mend.__main__ import _try
from benchmarks.mend.mender import SETTING_OF, mend
from benchmarks.mend.programs import SETTINGS, programs

NO_SETTING = {"span.add", "machine", "rank.work", "profiler.targets", "other"}
BY_NAME = {"call.every", "debug.switch", "module.code"}
PAGE = Path(__file__).parents[2] / "benchmarks" / "results" / "mend.md"


def explained(change: str, operation: str = "set", value: Any = None, target: str | None = None) -> dict[str, Any]:
    """Return an explanation with one cause and its experiment."""
    experiment = {"change": change, "operation": operation, "value": value, "target": target}
    place = dict.fromkeys(("call", "function", "name"))
    return {"causes": [{"rule": "a", "experiment": experiment, "place": place}]}


def test_every_change_of_the_schema_is_known() -> None:
    """A setting, a named entry of a setting, or none that a program can have."""
    assert {*SETTING_OF, *BY_NAME, *NO_SETTING} == set(get_args(Change))
    assert set(SETTING_OF.values()) <= set(SETTINGS)


def test_one_setting_is_changed_and_the_others_stay() -> None:
    """The given settings are left as they are."""
    before = copy.deepcopy(SETTINGS)
    settings, change, cause = mend(explained("precision", value="float16"), SETTINGS)
    assert before == SETTINGS
    assert {key for key, value in settings.items() if value != SETTINGS[key]} == {"precision"}
    assert change == "precision = float16"
    assert cause is not None


@pytest.mark.parametrize("name", ["slow loader", "one block ten times its siblings", "metrics in every step"])
def test_a_defect_is_mended_and_its_twin_left_alone(name: str) -> None:
    """From the run to the explanation, the new settings, the second run and the comparison."""
    result = _try(name)
    assert result.mended
    assert not result.twin_changed


def test_the_page_in_the_docs_has_every_defect() -> None:
    """At least 18 of them are mended, and no healthy twin is changed."""
    rows = [line.split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")][1:]
    assert [row[0].removeprefix("| ") for row in rows] == [one.name for one in programs()]
    assert sum(row[4] == "yes" for row in rows) >= 18
    assert {row[5] for row in rows} == {"unchanged |"}
