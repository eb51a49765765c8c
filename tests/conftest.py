"""All tests: signals have their usual effect, also where a shell has them ignored; no test has a deadline."""

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from forking_python import ForkingPython
from hypothesis import settings
from outcome_line import describe_outcome

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Set before torch is imported, for processes of tests, too. Each core runs tests of its own: a second thread of torch
waits, and uses the core of another test meanwhile, also for a tensor of ten numbers."""
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
"""Compile in the process itself: inductor's own workers would each import torch for graphs of a few operations."""

LONGEST = (
    "test_docs_blocks.py", "test_graphs_inductor.py", "test_simulated_zoo.py", "test_evidence.py",
    "test_fault_processes.py", "test_fault_exit_status.py", "test_doctor.py", "test_fault_moments.py",
    "test_diagnose_programs.py", "test_zoo.py", "test_life_release.py", "test_run_command.py",
)  # fmt: skip
"""The files that take longest: they come first, so that no core waits at the end for one that began late."""

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(scope="session", autouse=True)
def signals_have_their_effect() -> Iterator[None]:
    """Undo a shell's ``command &`` and ``nohup``, which have signals ignored; processes of tests inherit the effect."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        **dict.fromkeys((signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM), signal.SIG_DFL),
    }
    ignored = [which for which in usual if signal.getsignal(which) is signal.SIG_IGN]
    for which in ignored:
        signal.signal(which, usual[which])
    yield
    for which in ignored:
        signal.signal(which, signal.SIG_IGN)


@pytest.fixture(scope="session")
def forking_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkingPython]:
    """A Python in which torch is imported already, for tests whose programs start anew."""
    server = ForkingPython(tmp_path_factory.mktemp("python"))
    yield server
    server.close()


@pytest.fixture(autouse=True)
def no_pass_is_long(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Have no step be warm-up because a pass took long by a real clock, as on a busy machine any may."""
    if request.node.get_closest_marker("long_passes") is None:
        from autoprof.session.pipeline import Pipeline

        monkeypatch.setattr(Pipeline, "_note_length", lambda *_arguments: None)


@pytest.fixture(scope="module", autouse=True)
def frozen_before() -> None:
    """Leave what earlier files and imports have made out of garbage collections: walking it takes half a second."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files that take longest first; files that are named on the command line keep their order."""
    if any(".py" in name for name in config.args):
        return
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """End the output with one line that names the parts that skipped tests need. Workers of xdist print nothing."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    line = "" if reporter is None else describe_outcome(reporter.stats)
    if line:
        reporter.write_line(line)


def pytest_unconfigure() -> None:
    """Let the interpreter collect at its end what was frozen: bindings of DuckDB print pages about it otherwise."""
    gc.unfreeze()
