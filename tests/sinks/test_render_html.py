"""The report as HTML, for notebooks."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from sink_builders import frame_of, summary_of

from autoprof._reports.html import render_html
from autoprof.summary import Finding, Summary

VOID = {"br", "hr", "img", "meta", "link", "input"}


class Page(HTMLParser):
    """The text of a page, and whether every element that begins also ends."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_a_summary_shows_itself_in_a_notebook(summary: Summary) -> None:
    """Verdict, tree and phases, as in the report of the terminal."""
    found = Finding("recompute", "warning", "forwards run twice", "keep activations", name="VRT", gain_ns=100_000_000)
    page = Page(replace(summary, findings=(found,), notes=("a note",))._repr_html_())
    assert "Verdict [warning] recompute: VRT (up to 100.0 ms a step could be saved)" in page.text
    assert "VRT 82.0 % 820 280 100 440" in page.text
    assert "recompute 10.0 %" in page.text
    assert "note a note" in page.text
    assert "script" not in page.tags


@given(name=st.text(min_size=1, max_size=60))
def test_a_name_is_text_whatever_it_holds(name: str) -> None:
    """Names, findings and notes add no element."""
    shown = f"<b>{name}</b><script>"
    found = Finding("data-wait", "warning", shown, shown, name=shown)
    summary = replace(summary_of([frame_of(((shown, "forward", -1, 10),))], notes=(shown,)), findings=(found,))
    page = Page(render_html(summary, Path("/runs") / "<i>"))
    assert not page.tags & {"script", "i"}
    assert "<script>" in page.text


def test_text_has_the_colour_of_the_page(summary: Summary) -> None:
    """It is legible on a light and on a dark page: no colour of text or page is set, but the cell's own."""
    html = render_html(summary)
    assert "color: inherit" in html
    assert "background: none" in html
    assert "color: black" not in html
    assert "#fff" not in html


def test_a_run_without_recorded_steps_says_so() -> None:
    """Without a table of nothing."""
    page = Page(render_html(summary_of([frame_of(warmup=True)])))
    assert "nothing was recorded" in page.text
    assert "0.0" not in page.text
