"""The page in a real browser: drawn, clicked, typed into, printed; no error, no request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from report_builders import EVIL, frame_of, frames_of, layout_of, save_run

from autoprof.cli import main
from benchmarks.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

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


def test_every_part_is_drawn(browser: Browser, page: Path) -> None:
    """The verdict, the tree with the times of the run, the charts, memory."""
    browser.open(page)
    assert "298 recorded" in browser.text("#card")
    assert browser.count(BLOCK) >= 8
    assert browser.evaluate(f"document.querySelector('{_block('Net')}').offsetWidth") > 200
    for chart in ("#step-chart", "#phase-chart", "#memory-chart", "#module-chart-0"):
        drawn = (
            f"(() => {{ const c = document.querySelector('{chart} canvas'); const d = c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data; return d.some((one) => one !== 0); })()"
        )
        assert browser.evaluate(drawn), chart
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_block_is_as_wide_as_its_time(browser: Browser, page: Path) -> None:
    """Within two pixels: forward takes 40 of 100 ms; recompute runs inside backward."""
    browser.open(page)
    whole = browser.evaluate("document.querySelector('.icicle').clientWidth")
    wide = browser.evaluate(f"document.querySelector('{_block('forward')}').offsetWidth")
    mean = 100 + 2 * 200 / 298
    assert abs(wide - whole * 40 / mean) <= 2


def test_a_name_that_is_markup_is_text(browser: Browser, page: Path) -> None:
    """``<script>alert(1)</script>`` is shown, searched, linked to, and never run."""
    browser.open(page)
    browser.evaluate("window.alert = () => { document.title = 'run' }")
    browser.press("/")
    browser.type("<script>")
    assert EVIL in browser.text("#hits")
    browser.press("Enter")
    assert browser.text("#module h3").startswith(EVIL)
    assert browser.evaluate("document.title") != "run"
    assert browser.count("main script") == 0


def test_a_click_zooms_and_escape_zooms_out(browser: Browser, page: Path) -> None:
    """The address follows, so that a view can be linked to."""
    browser.open(page)
    before = browser.evaluate(f"document.querySelector('{_block('Net, backward')}').offsetWidth")
    browser.click(_block("Net, backward"))
    assert browser.evaluate(f"document.querySelector('{_block('Net, backward')}').offsetWidth") > before
    assert browser.text("#module h3").startswith("Net")
    assert "module=Net" in browser.evaluate("location.hash")
    browser.press("Escape")
    browser.press("Escape")
    assert browser.evaluate(f"document.querySelector('{_block('Net, backward')}').offsetWidth") == before


def test_the_tree_is_walked_by_keys(browser: Browser, page: Path) -> None:
    """Arrows move, Enter zooms."""
    browser.open(page)
    browser.evaluate("document.querySelector('.icicle .block').focus()")
    browser.press("ArrowDown")
    browser.press("ArrowRight")
    assert browser.evaluate("document.activeElement.textContent") == "forward"
    browser.press("Enter")
    assert "zoom=" in browser.evaluate("location.hash")


def test_phases_of_a_module_are_merged_by_module(browser: Browser, page: Path) -> None:
    """One block for Net, with the time of its forward and its backward."""
    browser.open(page)
    browser.press("m")
    assert browser.count(_block("Net:")) == 1
    label = browser.evaluate(f"document.querySelector('{_block('Net:')}').getAttribute('aria-label')")
    assert label.startswith("Net: 80.0 ms a step")


def test_a_slow_step_is_explained_by_a_click(browser: Browser, page: Path) -> None:
    """The phase and the row that were longer than usual, by how much."""
    browser.open(page)
    assert browser.count(".marker") == 2
    browser.click('.marker[data-step="200"]')
    assert "step=200" in browser.evaluate("location.hash")
    text = " ".join(browser.text("#step").split())
    assert text.startswith("× Step 200 300 ms")
    assert "data data 210 ms 10.0 ms +200 ms" in text


def test_any_step_can_be_clicked_in_the_chart(browser: Browser, page: Path) -> None:
    """Not only slow ones."""
    browser.open(page)
    browser.click("#step-chart .u-over")
    assert browser.text("#step h3").startswith("Step 15")


def test_a_link_opens_its_view(browser: Browser, page: Path) -> None:
    """``#module=…&step=…``."""
    browser.open(page, "#module=Net/A&step=100")
    assert browser.text("#module h3").startswith("Net/A")
    assert browser.text("#step h3").startswith("Step 100")


def test_an_unknown_module_in_a_link_is_a_sentence(browser: Browser, page: Path) -> None:
    """Not an empty panel."""
    browser.open(page, "#module=Gone&step=9999")
    assert "No module of this run is called Gone" in browser.text("#module")
    assert "was not recorded" in browser.text("#step")


def test_a_module_has_its_history_and_distribution(browser: Browser, page: Path) -> None:
    """For each phase a line and bars, and the figures of the report."""
    browser.open(page, "#module=Net/A")
    assert browser.count("#module .histogram") == 3
    assert "30.0 ms" in browser.text("#module table")


def test_light_and_dark_are_two_sets_of_colours(browser: Browser, page: Path) -> None:
    """As the system prefers, and by a key."""
    background = "getComputedStyle(document.body).backgroundColor"
    browser.dark(True)
    browser.open(page)
    dark = browser.evaluate(background)
    browser.press("t")
    assert browser.evaluate(background) == "rgb(255, 255, 255)" != dark
    browser.dark(False)


def test_the_keys_are_listed(browser: Browser, page: Path) -> None:
    """``?`` opens the list, Escape closes it."""
    browser.open(page)
    browser.press("?")
    assert browser.evaluate("document.getElementById('keys').open")
    assert "search a module" in browser.text("#keys")
    browser.evaluate("document.getElementById('keys').close()")


def test_the_page_prints(browser: Browser, page: Path) -> None:
    """With its tree, on more than one sheet."""
    browser.open(page)
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") >= 2


def test_ranks_are_side_by_side(browser: Browser, tmp_path: Path) -> None:
    """With the missing one named."""
    run = save_run(tmp_path, frames_of(30), world_size=3)
    save_run(tmp_path, frames_of(30), rank=2, world_size=3)
    assert main(["report", str(run), "--no-open"]) == 0
    browser.open(run / "report.html")
    assert "no records of rank 1" in browser.text("#ranks")
    assert browser.count("#ranks tbody tr") == 2


def test_the_slow_rank_is_seen_and_reached_by_keys(browser: Browser, tmp_path: Path) -> None:
    """A map of ranks and steps, and one of modules and ranks; each cell has a text."""
    run = save_run(tmp_path, frames_of(40), world_size=2)
    save_run(tmp_path, frames_of(40, slow=range(1, 41), extra_ms=30), rank=1, world_size=2)
    assert main(["report", str(run), "--no-open"]) == 0
    browser.open(run / "report.html")
    assert "Rank 1 takes 30.0 ms" in browser.text("#rank-excess .found")
    assert browser.text("#rank-excess .heat-name.slow") == "rank 1"
    assert browser.count('#rank-excess [role="gridcell"]') >= 2 * 38 + 2
    browser.evaluate("document.querySelector('#rank-excess .cell[tabindex=\"0\"]').focus()")
    browser.press("ArrowDown")
    browser.press("ArrowRight")
    label = browser.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label == "rank 1, step 4: +30.0 ms"
    browser.press("Enter")
    assert "step=4" in browser.evaluate("location.hash")
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_two_runs_are_compared_on_the_page(browser: Browser, tmp_path: Path) -> None:
    """Two trees, and a table of changes."""
    a = save_run(tmp_path, frames_of(60), name="a")
    slower = [frame_of(one.layout, one.step, [10, 40, 25, 5, 80, 70, 10, 5], 140) for one in frames_of(60)]
    b = save_run(tmp_path, slower, name="b")
    assert main(["report", str(a), "--compare", str(b), "--no-open"]) == 0
    browser.open(a / "report.html", "#module=Net")
    assert browser.count(".icicle") == 2
    assert "+40.0 %" in browser.text("#compare")


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
    browser.press("/")
    browser.type("layer2999")
    browser.press("Enter")
    assert browser.text("#module h3").startswith("Net/layer2999")
