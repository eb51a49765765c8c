"""``report.html``: the run as one page, written at its end from the records, as ``autoprof report`` does later."""

from __future__ import annotations

from .._core.options import Options
from .._storage.runs import read_run
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, SinkKind


class ReportOptions(Options):
    """The page `report.html`, written at the end of the run if its records have at most 64 MB."""


class ReportSink:
    """Write the page when the run is closed, after the records."""

    def __init__(self, options: ReportOptions, run: RunInfo) -> None:
        self._folder = folder_of(run)
        self._stream = run.stream

    def write(self, frame: StepFrame) -> None:
        """Do nothing: the page is made of the records."""

    def close(self, summary: Summary) -> None:
        """Write the page, unless the records are too large for the end of a run."""
        from .._reports.page.page import write_page

        run = read_run(self._folder.path)
        size = sum(run.rank_frames(rank).size_bytes for rank in run.ranks)
        # The largest records of which the page is written at the end: it takes about 4 s per 100 MB.
        if size > 64_000_000:
            why = f"report.html was not written: its records have {size / 1e6:.0f} MB"
            print(f"autoprof: {why}; autoprof report writes it", file=self._stream)
            return
        write_page(run, summary)


SINK = SinkKind(ReportOptions, ReportSink, in_folder=True, close_order=CloseOrder.PICTURES)
