"""The page in a real browser: drawn, clicked, typed into, printed; no error, no request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from report_builders import EVIL, frame_of, frames_of, layout_of, save_run

from autoprof.base.summary import Finding, Summary
from autoprof.frontends.cli import main
from docs.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

BLOCK = ".icicle .block"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests: it takes a second to start."""
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of 300 steps, two of them slow."""
    run = save_run(tmp_path_factory.mktemp("runs"), frames_of(300, slow=(100, 200)))
    assert main(["report", str(run), "--no-open"]) == 0
    return run / "report.html"


@pytest.fixture(autouse=True)
def _quiet(browser: Browser) -> Iterator[None]:
    """No test leaves an error in the console, and no page asks for anything but itself."""
    yield
    assert browser.errors == []
    assert [url for url in browser.requests if not url.endswith(".html") and "#" not in url] == []
    assert not [url for url in browser.requests if not url.startswith(("file:", "about:"))]


def _block(name: str) -> str:
    return f'.icicle .block[aria-label^="{name}"]'


def test_a_run_beside_other_processes_says_so(browser: Browser, tmp_path: Path) -> None:
    """Its times are longer: a condition, below the verdict."""
    finding = Finding("optimizer", "note", "the optimizer takes long", "a larger batch", "Optimizer")

    def crowded(summary: Summary) -> Summary:
        return replace(summary, findings=(finding,), conditions=("beside other processes: they kept 2 of 2 busy",))

    run = save_run(tmp_path, frames_of(30), edit=crowded)
    assert main(["report", str(run), "--no-open"]) == 0
    browser.open(run / "report.html")
    assert "Measured beside other processes: they kept 2 of 2 busy" in browser.text("#card")
    assert "[note]" not in browser.text("#card")  # its badge says it


def test_every_part_is_drawn(browser: Browser, page: Path) -> None:
    """The verdict, the tree with the times of the run, the charts, memory."""
    browser.open(page)
    assert "298 recorded" in browser.text("#card")
    assert browser.count(BLOCK) == 7
    assert browser.evaluate(f"document.querySelector('{_block('Net')}').offsetWidth") > 200
    for chart in ("#step-chart", "#phase-chart", "#memory-chart", "#module-chart"):
        drawn = (
            f"(() => {{ const c = document.querySelector('{chart} canvas'); const d = c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data; return d.some((one) => one !== 0); })()"
        )
        assert browser.evaluate(drawn), chart
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_block_is_as_wide_as_its_time(browser: Browser, page: Path) -> None:
    """Within two pixels: forward and backward of the whole net take 80 of 100 ms."""
    browser.open(page)
    whole = browser.evaluate("document.querySelector('.icicle').clientWidth")
    wide = browser.evaluate(f"document.querySelector('{_block('Net')}').offsetWidth")
    mean = 100 + 2 * 200 / 298
    assert abs(wide - whole * 80 / mean) <= 2


def test_a_name_that_is_markup_is_text(browser: Browser, page: Path) -> None:
    """``<script>alert(1)</script>`` is shown, searched, linked to, and never run."""
    browser.open(page)
    browser.evaluate("window.alert = () => { document.title = 'run' }")
    browser.click("#search")
    browser.type("<script>")
    assert browser.evaluate(f"[...document.querySelectorAll('#names option')].some((one) => one.value === {EVIL!r})")
    browser.press("Enter")
    assert browser.text("#module h3").startswith(EVIL)
    assert browser.evaluate("document.title") != "run"
    assert browser.count("main script") == 0


def test_a_click_zooms_and_another_zooms_out(browser: Browser, page: Path) -> None:
    """The address follows, so that a view can be linked to."""
    browser.open(page)
    before = browser.evaluate(f"document.querySelector('{_block('Net:')}').offsetWidth")
    browser.click(_block("Net:"))
    assert browser.evaluate(f"document.querySelector('{_block('Net:')}').offsetWidth") > before
    assert browser.text("#module h3").startswith("Net")
    assert "module=Net" in browser.evaluate("location.hash")
    browser.click(_block("step"))
    assert browser.evaluate(f"document.querySelector('{_block('Net:')}').offsetWidth") == before


def test_a_slow_step_is_explained_by_a_click(browser: Browser, page: Path) -> None:
    """The phase and the row that were longer than usual, by how much."""
    browser.open(page)
    assert browser.count("#slow a") == 2
    browser.click('#slow a[data-step="200"]')
    assert "step=200" in browser.evaluate("location.hash")
    text = " ".join(browser.text("#step").split())
    assert text.startswith("× Step 200 300 ms")
    assert "data data 210 ms 10.0 ms +200 ms" in text
    assert "Means per recorded step" in browser.text("#text pre")


def test_the_search_finds_what_takes_next_to_no_time(browser: Browser, tmp_path: Path) -> None:
    """Its share is small, not zero."""
    rows = [("Net", "forward", -1, 40.0), ("Tiny", "forward", -1, 0.0002)]
    frames = [frame_of(layout_of(rows), step, [40, 0.0002], 1000) for step in range(1, 9)]
    run = save_run(tmp_path, frames)
    assert main(["report", str(run), "--no-open"]) == 0
    browser.open(run / "report.html")
    browser.click("#search")
    browser.type("tiny")
    browser.press("Enter")
    assert browser.text("#module h3").startswith("Tiny")
    assert "<0.1 %" in browser.text("#module")


def test_memory_has_its_last_reading(browser: Browser, tmp_path: Path) -> None:
    """Memory is not read in each recorded step, so the last one may have no reading."""
    frames = frames_of(30)
    frames[-1] = replace(frames[-1], memory={})
    run = save_run(tmp_path, frames)
    assert main(["report", str(run), "--no-open"]) == 0
    browser.open(run / "report.html")
    assert "rss 953.7 MiB" in browser.text("#memory")


def test_a_chart_says_where_nothing_was_recorded(browser: Browser, tmp_path: Path) -> None:
    """Before a row was opened, while it did not run, and after the last recorded step, the run going on."""
    late = layout_of([("Net", "forward", -1, 40.0), ("Late", "forward", -1, 20.0)])
    early = layout_of([("Net", "forward", -1, 40.0)])
    frames = [frame_of(late, step, [40, 20], 100) for step in (*range(41, 61), *range(81, 101))]
    frames += [frame_of(early, step, [40], 100) for step in (*range(1, 41), *range(61, 81))]
    frames.sort(key=lambda frame: frame.step)
    run = save_run(tmp_path, frames, edit=lambda summary: replace(summary, unsampled_steps=60))
    assert main(["report", str(run), "--no-open"]) == 0
    browser.open(run / "report.html", "#module=Late")
    left = "[...document.querySelectorAll('{} .absent')].map((one) => one.offsetLeft / one.parentElement.clientWidth)"
    assert browser.evaluate(left.format("#module-chart")) == pytest.approx([0, 59 / 159, 99 / 159], abs=0.01)
    assert browser.text("#module-chart .absent") == "nothing recorded"
    for chart in ("#step-chart", "#phase-chart", "#memory-chart"):
        assert browser.evaluate(left.format(chart)) == pytest.approx([99 / 159], abs=0.01)
    assert "100 recorded steps of 160" in browser.text("#steps")


def test_an_unknown_module_in_a_link_is_a_sentence(browser: Browser, page: Path) -> None:
    """Not an empty panel."""
    browser.open(page, "#module=Gone&step=9999")
    assert "No module of this run is called Gone" in browser.text("#module")
    assert "was not recorded" in browser.text("#step")


@pytest.mark.parametrize("what", ["killed", "empty", "no records", "one step"])
def test_a_run_with_little_is_a_page_with_little(browser: Browser, tmp_path: Path, what: str) -> None:
    """And no error in it."""
    steps = {"empty": 2, "one step": 3}.get(what, 30)
    run = save_run(tmp_path, frames_of(steps), closed=what != "killed")
    if what == "no records":
        (run / "rank0/steps.jsonl").unlink()
    assert main(["report", str(run), "--no-open"]) == 0
    browser.open(run / "report.html")
    assert browser.count("#card h1") == 1
    assert ("not closed" in browser.text("#card")) == (what == "killed")


def test_many_modules_and_steps_stay_few_elements(browser: Browser, tmp_path: Path) -> None:
    """Blocks too narrow to see are one hatched block; a zoom shows them."""
    rows = [("Net", "forward", -1, 1000.0)]
    rows += [(f"Net/layer{number:04d}", "forward", 0, 990.0 / 3000) for number in range(3000)]
    layout = layout_of(rows)
    frames = [frame_of(layout, step, [ms for *_, ms in rows], 1100) for step in range(1, 40)]
    run = save_run(tmp_path, frames)
    assert main(["report", str(run), "--no-open"]) == 0
    browser.open(run / "report.html")
    assert browser.count(BLOCK) < 50
    assert browser.count(".icicle .short") == 1
    browser.click("#search")
    browser.type("layer2999")
    browser.press("Enter")
    assert browser.text("#module h3").startswith("Net/layer2999")
