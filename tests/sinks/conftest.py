"""Fixtures of the sinks' and renderers' tests."""

from collections.abc import Callable

import pytest
from sink_builders import VRT, Clock, frame_of, layout_of, summary_of

from autoprof.base.summary import Summary


@pytest.fixture
def clock() -> Clock:
    """A clock whose time changes only by a test."""
    return Clock()


@pytest.fixture
def summary() -> Summary:
    """Two equal steps of the reference account."""
    layout = layout_of(VRT)
    return summary_of([frame_of(layout=layout, step=i, scalars={"samples": 2.0}) for i in (1, 2)])


@pytest.fixture
def make_summary() -> Callable[..., Summary]:
    """Make a summary of one frame of these rows."""
    return lambda rows=VRT, **kwargs: summary_of([frame_of(rows, **kwargs)])
