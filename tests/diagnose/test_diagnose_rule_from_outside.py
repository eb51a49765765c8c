"""A rule of another package is a rule like the built-in ones: the example of docs/extending/rule.md, installed."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from evidence_builders import finding_of, found

import autoprof
from autoprof.base.plugins import PartKind
from autoprof.base.summary import Summary
from autoprof.diagnose import Rule, _judge, find_rules
from autoprof.reports.card import render_card
from autoprof.testing import FakeClock
from tests.defects.data import train_with_slow_loader
from tests.defects.training import MS, four_layers, train

PAGE = Path(__file__).parents[2] / "docs" / "extending" / "rule.md"
GROUP = "autoprof.diagnose.rules"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, entry_points: str) -> None:
    """Install the page's example as a module of another package, with these entry points."""
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    (folder / "augmentation_rule.py").write_text(example[1], encoding="utf-8")
    info = folder / "augmentation-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: augmentation\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entry_points}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(_judge, "RULE_KIND", PartKind("rule", GROUP, "RULE", Rule))
    find_rules.cache_clear()


@pytest.fixture
def rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rule]:
    """The rule of the page, from another package."""
    install(tmp_path, monkeypatch, "augmentation = augmentation_rule:RULE")
    yield find_rules()["augmentation"]
    find_rules.cache_clear()
    del sys.modules["augmentation_rule"]


def _train_with_augmentation(milliseconds: int) -> Summary:
    """Augment for this long in each step."""
    clock = FakeClock()

    def augment(_step: int) -> None:
        with autoprof.span("Augment"):
            clock.advance(milliseconds * MS)

    return train(four_layers(clock), clock, in_step=augment)


def test_its_verdict_is_in_the_card(rule: Rule) -> None:
    """The defect is the verdict of a live run, and its healthy twin has none."""
    broken = _train_with_augmentation(200)
    assert found(broken)[0] == rule.name
    assert render_card(broken)[0].startswith("Verdict   [warning] augmentation: Augment ")
    assert "each step augments its batch for 200.0 ms" in " ".join(" ".join(render_card(broken)).split())
    assert found(_train_with_augmentation(1)) == []


def test_it_comes_after_the_built_in_rules(rule: Rule) -> None:
    """Without an order of its own."""
    assert list(find_rules())[-1] == rule.name


def test_one_that_cannot_be_loaded_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names it, and the built-in rules judge."""
    install(tmp_path, monkeypatch, "augmentation = augmentation_rule:NO_RULE")
    assert "data-wait" in find_rules()
    assert "augmentation" not in find_rules()
    assert "rule 'augmentation' of another package: AttributeError" in caplog.text
    find_rules.cache_clear()


def test_one_that_raises_costs_only_itself(
    rule: Rule, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other rules judge the run, with one warning."""
    broken = replace(rule, judge=lambda run: 1 / 0)
    monkeypatch.setitem(_judge.RULE_KIND.parts, "augmentation", broken)
    find_rules.cache_clear()
    for _ in range(2):
        summary = train_with_slow_loader(True)
        assert summary.findings[0].rule == "data-wait"
        assert finding_of(summary, rule.name) is None
    assert caplog.text.count("rule 'augmentation' of another package: ZeroDivisionError") == 1
