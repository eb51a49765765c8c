"""The report as HTML, for notebooks."""

from dataclasses import replace
from html import unescape

from hypothesis import given
from hypothesis import strategies as st
from sink_builders import frame_of, summary_of

from autoprof.base.summary import Finding, Summary
from autoprof.reports.short_text import render_html, render_short


def test_a_summary_shows_itself_in_a_notebook(summary: Summary) -> None:
    """Verdict, tree and phases, as in the report of the terminal."""
    found = Finding("recompute", "warning", "forwards run twice", "keep activations", name="VRT", gain_ns=100_000_000)
    text = replace(summary, findings=(found,), notes=("a note",))._repr_html_()
    assert "[warning] recompute: VRT (up to 100.0 ms a step could be saved)" in text
    assert "a note" in text
    assert "<script" not in text


def test_a_printed_summary_is_the_report(summary: Summary) -> None:
    """And not the representation of its fields."""
    assert str(summary) == "\n".join(render_short(summary))


@given(name=st.text(min_size=1, max_size=60))
def test_a_name_is_text_whatever_it_holds(name: str) -> None:
    """Names, findings and notes add no element."""
    shown = f"<b>{name}</b><script>"
    found = Finding("data-wait", "warning", shown, shown, name=shown)
    summary = replace(summary_of([frame_of(((shown, "forward", -1, 10),))], notes=(shown,)), findings=(found,))
    html = render_html(summary)
    assert (html.count("<"), html.count("</")) == (4, 2)
    assert "<script>" in unescape(html)
