"""Views: functions from data to text or a figure. They open no file, print nothing and hold no state."""

from ..base.summary import Summary


def _show_in_notebook(summary: Summary) -> str:
    from .short_text import render_html  # only notebooks need it

    return render_html(summary)


def _print(summary: Summary) -> str:
    from .short_text import render_short  # only programs that print a summary need it

    return "\n".join(render_short(summary))


Summary._repr_html_ = _show_in_notebook
Summary.__str__ = _print  # type: ignore[assignment]
