"""The page as a file, and the command that writes it: whole, inert, and of bounded size."""

import base64
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_builders import EVIL, frame_of, frames_of, layout_of, save_run

from autoprof.frontends.cli import main


class PageParts(HTMLParser):
    """The scripts, the styles, the policy and all addresses of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.links: list[str] = []
        self.policy = ""
        self._within = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.links += [value or "" for key, value in attrs if key in ("src", "href")]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""
        self._within = "data" if values.get("id") == "data" else tag

    def handle_data(self, data: str) -> None:
        if self._within in ("script", "style", "data"):
            self.texts.append((self._within, data))

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    @property
    def data(self) -> dict[str, Any]:
        (text,) = (text for kind, text in self.texts if kind == "data")
        found: dict[str, Any] = json.loads(text)
        return found


def _report(run: Path, *arguments: str) -> PageParts:
    assert main(["report", str(run), "--no-open", *arguments]) == 0
    return PageParts((run / "report.html").read_text("utf-8"))


def test_the_command_writes_the_page_into_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And prints where it is."""
    run = save_run(tmp_path, frames_of(20))
    parts = _report(run)
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    assert parts.data["run"]["steps"] == 18


def test_errors_are_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No run, no such rank, no such folder: status 2, without a traceback."""
    run = save_run(tmp_path / "runs", frames_of(20))
    for arguments, word in (
        ([str(tmp_path / "none")], "does not exist here"),
        ([str(run), "--rank", "7"], "it has: 0"),
        ([str(run), "-o", str(tmp_path / "no" / "a.html")], "cannot be written"),
    ):
        assert main(["report", *arguments, "--no-open"]) == 2
        assert word in capsys.readouterr().err


def test_a_name_cannot_become_markup(tmp_path: Path) -> None:
    """The data has no character that could end its element."""
    run = save_run(tmp_path, frames_of(20))
    parts = _report(run)
    assert EVIL in parts.data["run"]["rows"]["name"]
    assert EVIL not in (run / "report.html").read_text("utf-8")
    assert parts.tags.count("script") == 3


def test_the_page_may_load_nothing(tmp_path: Path) -> None:
    """The policy allows its own scripts and styles, by their hashes, and no address."""
    parts = _report(save_run(tmp_path, frames_of(20)))
    assert parts.policy.startswith("default-src 'none'")
    assert "unsafe" not in parts.policy
    assert "http" not in parts.policy
    assert all(link.startswith("#") for link in parts.links)
    for kind, text in parts.texts:
        if kind != "data":
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in parts.policy


def test_steps_that_are_recorded_twice_are_shown(tmp_path: Path) -> None:
    """As in records that were put together by hand: equal steps of equal length have no order."""
    run = save_run(tmp_path, [*frames_of(30), *frames_of(30)])
    assert _report(run).data["run"]["headline"].startswith("autoprof:")


def test_many_modules_fit_into_the_page(tmp_path: Path) -> None:
    """The longest rows alone have a history: a page has at most 5 MB."""
    rows = [("Net", "forward", -1, 1000.0)]
    rows += [(f"Net/layers.{at:04d}/attention/projection", "forward", 0, 0.1 + 0.0001 * at) for at in range(3999)]
    layout = layout_of(rows)
    times = [[1000, *(ms * (1 + step % 7 / 10) for *_, ms in rows[1:])] for step in range(100)]
    frames = [frame_of(layout, step, times_ms, 1100) for step, times_ms in enumerate(times, 1)]
    run = save_run(tmp_path, frames)
    _report(run)
    assert (run / "report.html").stat().st_size <= 5_000_000
