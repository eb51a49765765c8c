"""The live panel in a notebook: one output of a cell, replaced in place."""

import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from sink_builders import Clock, frame_of, summary_of

from autoprof._storage.runs import RunFolder
from autoprof.sinks._base import RunInfo
from autoprof.sinks._notebook import NotebookOutput
from autoprof.sinks.console import ConsoleOptions, ConsoleSink


class Notebook:
    """The outputs of a notebook by their id, in the order in which they were made; ``cell`` is the one that runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kernel: bool = True) -> None:
        self.outputs: dict[str, dict[str, str]] = {}
        self.shell = SimpleNamespace(execution_count=1, **({"kernel": object()} if kernel else {}))
        ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
        ipython.get_ipython = lambda: self.shell  # type: ignore[attr-defined]
        display.display = self.display  # type: ignore[attr-defined]
        display.update_display = self.update  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, bundle: dict[str, str], *, display_id: str, raw: bool) -> None:
        assert raw
        assert display_id not in self.outputs
        self._set(display_id, bundle)

    def update(self, bundle: dict[str, str], *, display_id: str, raw: bool) -> None:
        assert raw
        assert display_id in self.outputs
        self._set(display_id, bundle)

    def _set(self, display_id: str, bundle: dict[str, str]) -> None:
        self.outputs[display_id] = bundle

    @property
    def last(self) -> dict[str, str]:
        return list(self.outputs.values())[-1]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """A notebook in which this process is the kernel."""
    return Notebook(monkeypatch)


def console(clock: Clock, stream: io.StringIO, folder: RunFolder | None = None) -> ConsoleSink:
    return ConsoleSink(ConsoleOptions(every=1), RunInfo(folder, 0, stream, clock))


def step(sink: ConsoleSink, clock: Clock, number: int) -> None:
    clock.now += 1
    sink.write(frame_of(step=number))
    if sink.due():
        sink.show(summary_of([frame_of(step=number)]), number)


def test_the_panel_is_replaced_in_place(notebook: Notebook, clock: Clock) -> None:
    """One output, as text and as HTML, and nothing on the stream."""
    stream = io.StringIO()
    sink = console(clock, stream)
    for number in range(1, 5):
        step(sink, clock, number)
    assert len(notebook.outputs) == 1
    assert "autoprof · step 4 ·" in notebook.last["text/plain"]
    assert "autoprof · step 4 ·" in notebook.last["text/html"]
    assert "\x1b" not in notebook.last["text/html"]
    assert stream.getvalue() == ""


def test_another_cell_gets_an_output_of_its_own(notebook: Notebook, clock: Clock) -> None:
    """A loop in a later cell is not shown above, in the cell of the first loop."""
    sink = console(clock, io.StringIO())
    step(sink, clock, 1)
    notebook.shell.execution_count = 2
    step(sink, clock, 2)
    step(sink, clock, 3)
    first, second = notebook.outputs.values()
    assert "step 1" in first["text/plain"]
    assert "step 3" in second["text/plain"]


def test_the_report_replaces_the_panel(notebook: Notebook, clock: Clock, tmp_path: Path) -> None:
    """As HTML, with the run's folder; as text for outputs without HTML."""
    stream = io.StringIO()
    folder = RunFolder.create(tmp_path, name="<i>")
    sink = console(clock, stream, folder)
    step(sink, clock, 1)
    sink.close(summary_of([frame_of()]))
    assert len(notebook.outputs) == 1
    assert notebook.last["text/html"].startswith('<div class="autoprof">')
    assert str(folder.path) in notebook.last["text/plain"]
    assert stream.getvalue() == ""


def test_a_script_that_loads_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Libraries import IPython; a terminal's IPython has no kernel, and a script has no shell."""
    plain = Notebook(monkeypatch, kernel=False)
    assert NotebookOutput.of_this_process() is None
    plain.shell = None  # type: ignore[assignment]
    assert NotebookOutput.of_this_process() is None
    stream = io.StringIO()
    step(console(clock, stream), clock, 1)
    assert "autoprof | step 1" in stream.getvalue()
