"""``autoprof doctor``: every check in a healthy case and in one with the very defect it is there for."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from autoprof._capture.hooks.module import ModuleProbe
from autoprof._capture.mark_cost import MarkCost
from autoprof._process import lifecycle
from autoprof._targets import Coverage, Reason
from autoprof.cli import main
from autoprof.config import Config, Sample, parse_config
from autoprof.doctor import (
    CheckVerdict,
    Report,
    Result,
    Subject,
    examine,
    hazards,
    installation,
    load_subject,
    measures,
)
from autoprof.doctor import model_checks as checks
from autoprof.doctor.digest import RandomState, digest
from autoprof.doctor.examine import EVERY_MODULE
from autoprof.doctor.outcome import Observed, Outcome, Profiled
from autoprof.doctor.table import render_report
from autoprof.doctor.trial import Trials
from autoprof.errors import AutoprofError, TargetError
from autoprof.frame import Phase, Span
from autoprof.sinks._terminal import PinnedLines
from autoprof.summary import Summary
from autoprof.testing import FakeClock, FakeDevice, make_frame

OK, WARNING, PROBLEM, UNKNOWN = CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.PROBLEM, CheckVerdict.UNKNOWN
EVERY = parse_config(EVERY_MODULE)
scripting = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run in a folder of the test's own; afterwards no session is open and no profile function set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOPROF", raising=False)
    torch.manual_seed(0)
    yield
    assert not lifecycle._open
    assert sys.getprofile() is None


class Net(nn.Module):
    """Two layers, dropout and a batch norm: weights, buffers and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.b = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.drop(self.norm(self.a(x))))


def subject(model: nn.Module | None = None, **given: Any) -> Subject:
    """Return a model with a batch."""
    return Subject("test", model or Net(), **({"batch": torch.randn(3, 4)} | given))


def result_of(report: Report, check: str) -> Result:
    """Return the result of one check."""
    (found,) = [result for result in report.results if result.check == check]
    return found


def identity_of(one: Subject) -> Result:
    """Return the result of the comparison alone."""
    return checks.compare_trials(Trials(one, EVERY))[0]


def hook_every_target(monkeypatch: pytest.MonkeyPatch, hook: Any) -> None:
    """Have the engine attach a forward hook too many, until it detaches."""
    attach, detach = ModuleProbe.attach, ModuleProbe.detach
    extra: dict[int, Any] = {}

    def defective(self: ModuleProbe) -> None:
        attach(self)
        if not type(self.module).__module__.startswith("autoprof"):  # what autoprof measures itself with
            extra[id(self)] = self.module.register_forward_hook(hook)

    def undone(self: ModuleProbe) -> None:
        detach(self)
        if id(self) in extra:
            extra.pop(id(self)).remove()

    monkeypatch.setattr(ModuleProbe, "attach", defective)
    monkeypatch.setattr(ModuleProbe, "detach", undone)


class TestVersions:
    """Python and the packages against the ranges of the distribution."""

    def test_this_installation_is_in_range(self) -> None:
        """The tests run in it."""
        found = installation.check_versions()
        assert found.verdict is OK
        assert found.data["torch"] == metadata.version("torch")

    def test_a_package_outside_its_range_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is named with its version and the range."""
        real = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: "1.13.1" if name == "torch" else real(name))
        found = installation.check_versions()
        assert found.verdict is PROBLEM
        assert "torch 1.13.1 is outside >=2.4" in found.message

    def test_a_package_that_is_missing_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that every run needs; those of extras may be missing."""
        real = metadata.version

        def version(name: str) -> str:
            if name == "wrapt":
                raise metadata.PackageNotFoundError(name)
            return real(name)

        monkeypatch.setattr(metadata, "version", version)
        found = installation.check_versions()
        assert found.verdict is PROBLEM
        assert "wrapt>=1.16 is not installed" in found.message

    def test_python_outside_its_range_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As one may get by copying the package."""
        monkeypatch.setattr(installation.platform, "python_version", lambda: "3.8.1")
        assert "python 3.8.1 is outside >=3.10" in installation.check_versions().message

    def test_a_python_without_the_gil_is_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing has been tested on it."""
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        assert installation.check_versions().verdict is WARNING

    def test_a_package_that_was_never_installed_cannot_be_checked(self) -> None:
        """Its ranges are in its metadata."""
        assert installation.check_versions("no-such-distribution").verdict is UNKNOWN


class TestSwitch:
    """Whether anything would be recorded."""

    def test_it_is_on(self) -> None:
        """Without the variable."""
        assert installation.check_switch({}, Config()).verdict is OK

    @pytest.mark.parametrize("value", ["0", "off", "FALSE", " no "])
    def test_the_environment_switches_it_off(self, value: str) -> None:
        """In each way that a session understands."""
        assert installation.check_switch({"AUTOPROF": value}, Config()).verdict is WARNING

    def test_the_configuration_switches_it_off(self) -> None:
        """``enabled: false``."""
        assert "enabled: false" in installation.check_switch({}, Config(enabled=False)).message


class TestOutput:
    """Where runs would go."""

    def test_a_folder_that_can_be_made_is_fine_and_is_not_made(self, tmp_path: Path) -> None:
        """Nothing is left behind."""
        found = installation.check_output(Config(output=tmp_path / "new" / "runs"))
        assert found.verdict in (OK, WARNING)  # WARNING where the disk of the tests is nearly full
        assert str(tmp_path / "new" / "runs") in found.message
        assert list(tmp_path.iterdir()) == []

    def test_a_file_in_the_way_is_a_problem(self, tmp_path: Path) -> None:
        """No folder can be made below it."""
        (tmp_path / "runs").write_text("")
        found = installation.check_output(Config(output=tmp_path / "runs" / "today"))
        assert found.verdict is PROBLEM
        assert "is a file" in found.message

    def test_a_folder_that_cannot_be_written_is_a_problem(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For want of the right, or because the file system is read-only."""

        def refuse(**_given: Any) -> Any:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
        found = installation.check_output(Config(output=tmp_path))
        assert found.verdict is PROBLEM
        assert os.strerror(errno.EROFS) in found.message

    def test_little_room_is_a_warning(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With what is left."""
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=10 * 1024 * 1024))
        found = installation.check_output(Config(output=tmp_path))
        assert found.verdict is WARNING
        assert "10.0 MiB free" in found.message

    def test_a_configuration_without_files_needs_no_folder(self) -> None:
        """Whatever ``output`` says."""
        assert (
            "no files" in installation.check_output(parse_config("{output: /dev/null/x, sinks: {console: {}}}")).message
        )


class TestTerminal:
    """How the live table would be shown."""

    @pytest.mark.parametrize(
        ("size", "verdict", "words"),
        [
            ((200, 50), OK, "200 x 50, utf-8: a live panel"),
            ((60, 50), OK, "without phases"),
            ((200, 10), WARNING, "too low"),
            (None, OK, "plain lines at times"),
        ],
    )
    def test_its_size_decides(
        self, size: Any, verdict: CheckVerdict, words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Or that there is none."""
        monkeypatch.setattr(PinnedLines, "terminal_size", staticmethod(lambda _stream: size))
        found = installation.check_terminal(io.TextIOWrapper(io.BytesIO(), "utf-8"), Config())
        assert found.verdict is verdict
        assert words in found.message

    def test_an_encoding_without_lines_is_a_warning(self) -> None:
        """Tables are ASCII then."""
        found = installation.check_terminal(io.TextIOWrapper(io.BytesIO(), "ascii"), Config())
        assert found.verdict is WARNING
        assert "utf-8" in found.next

    def test_without_a_console_it_does_not_matter(self) -> None:
        """Even an ASCII one."""
        stream = io.TextIOWrapper(io.BytesIO(), "ascii")
        assert installation.check_terminal(stream, parse_config("sinks: {}")).verdict is OK

    def test_names_that_fonts_can_show_are_fine(self) -> None:
        """ASCII always is."""
        assert installation.check_fonts(["VRT/Stage1"]).verdict is OK

    def test_names_that_no_font_can_show_are_a_warning(self) -> None:
        """They are written as code points in plots."""
        found = installation.check_fonts(["VRT/\U0010fffd"])
        assert found.verdict is WARNING
        assert "code points" in found.message


class TestHazards:
    """What else is in the process or on the machine."""

    def test_none_is_one_result(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a quiet machine, in a clean environment."""
        monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
        monkeypatch.setattr(hazards, "check_tracing", lambda: None)  # the tests may run under coverage
        monkeypatch.setattr(hazards, "check_processors", lambda: None)
        (found,) = hazards.check_hazards({}, Net())
        assert (found.check, found.verdict) == ("hazards", OK)

    @pytest.mark.parametrize(
        ("name", "value", "check"),
        [
            ("CUDA_DEVICE_MAX_CONNECTIONS", "1", "connections"),
            ("CUDA_INJECTION64_PATH", "/opt/libToolsInjection64.so", "cuda-tools"),
            ("NVTX_INJECTION64_PATH", "/opt/libToolsInjection64.so", "cuda-tools"),
            ("NSYS_PROFILING_SESSION_ID", "7", "cuda-tools"),
            ("CUDA_LAUNCH_BLOCKING", "1", "blocking"),
            ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "allocator"),
            ("KINETO_USE_DAEMON", "1", "torch-profiler"),
        ],
    )
    def test_a_variable_of_the_environment(self, name: str, value: str, check: str) -> None:
        """It is named, with what to do."""
        found = {result.check: result for result in hazards.check_hazards({name: value})}[check]
        assert found.verdict is WARNING
        assert name in found.message
        assert found.next

    @pytest.mark.parametrize(
        ("name", "value"),
        [("CUDA_DEVICE_MAX_CONNECTIONS", "8"), ("CUDA_LAUNCH_BLOCKING", "0"), ("KINETO_USE_DAEMON", "0")],
    )
    def test_a_variable_with_a_harmless_value(self, name: str, value: str) -> None:
        """It is no hazard."""
        names = {result.check for result in hazards.check_hazards({name: value})}
        assert not names & {"connections", "blocking", "torch-profiler"}

    def test_torchs_profiler_that_is_recording(self) -> None:
        """Its cost is in every time."""
        with torch.autograd.profiler.profile():
            found = hazards.check_torch_profiler({})
        assert found is not None
        assert "is recording" in found.message
        assert hazards.check_torch_profiler({}) is None

    def test_anomaly_mode(self) -> None:
        """Only while it is on."""
        with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
            assert hazards.check_anomaly_mode() is not None
        assert hazards.check_anomaly_mode() is None

    @pytest.mark.parametrize("way", ["settrace", "setprofile"])
    def test_a_trace_or_profile_function(self, way: str) -> None:
        """A debugger, coverage, a Python profiler."""
        before = getattr(sys, f"get{way[3:]}")()
        getattr(sys, way)(lambda *_: None)
        try:
            found = hazards.check_tracing()
        finally:
            getattr(sys, way)(before)
        assert found is not None
        assert f"sys.{way}" in found.message

    def test_more_threads_than_processors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in a container that torch cannot see the size of."""
        monkeypatch.setattr(torch, "get_num_threads", lambda: 4096)
        found = hazards.check_processors()
        assert found is not None
        assert "OMP_NUM_THREADS=" in found.next

    @pytest.mark.parametrize(
        ("governor", "driver", "warned"),
        [
            ("powersave", "acpi-cpufreq", True),
            ("powersave", "intel_pstate", False),
            ("performance", "acpi-cpufreq", False),
            (None, None, False),
        ],
    )
    def test_the_frequency_governor(
        self, governor: str | None, driver: str | None, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where it can be read, and where ``powersave`` means what it says."""
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        if governor is not None and driver is not None:
            folder = tmp_path / "cpu0" / "cpufreq"
            folder.mkdir(parents=True)
            (folder / "scaling_governor").write_text(f"{governor}\n")
            (folder / "scaling_driver").write_text(f"{driver}\n")
        assert (hazards.check_processors(tmp_path) is not None) is warned

    @pytest.mark.parametrize(("load", "warned"), [(0.1, False), (1e6, True)])
    def test_the_load_of_the_machine(self, load: float, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """Against its processors."""
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
        assert (hazards.check_load() is not None) is warned

    def test_full_backward_hooks_of_others_are_counted(self) -> None:
        """With the modules that have them; forward hooks alone are no hazard."""
        model = Net()
        model.a.register_forward_hook(lambda *_: None)
        assert hazards.check_other_hooks(model) is None
        model.a.register_full_backward_hook(lambda *_: None)
        model.b.register_full_backward_pre_hook(lambda *_: None)
        found = hazards.check_other_hooks(model)
        assert found is not None
        assert found.data["full"] == {"a": 1, "b": 1}

    def test_hooks_on_every_module_of_the_process_are_counted(self) -> None:
        """Global ones."""
        handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
        try:
            found = hazards.check_other_hooks(Net())
        finally:
            handle.remove()
        assert found is not None
        assert "1 hooks of others on every module" in found.message


class TestClock:
    """Its resolution, its cost, its scatter, on clocks that a test drives."""

    def test_an_even_clock_is_described(self) -> None:
        """Fifty nanoseconds a reading, and not one more."""
        found = measures.check_clock(FakeClock(tick_ns=50))
        assert found.verdict is OK
        assert found.data == {"limit_ns": 0, "resolution_ns": 50, "cost_ns": 50, "scatter_ns": 0}

    def test_a_coarse_clock_is_a_warning_with_its_source(self, tmp_path: Path) -> None:
        """Such as hpet, which the kernel falls back to."""
        (tmp_path / "source").write_text("hpet\n")
        found = measures.check_clock(FakeClock(tick_ns=1500), tmp_path / "source")
        assert found.verdict is WARNING
        assert "hpet" in found.next

    def test_scatter_is_the_distance_of_the_slowest_hundredth(self) -> None:
        """From the median."""
        ticks = iter(range(10**6))
        now = [0]

        def read() -> int:
            now[0] += 1000 if next(ticks) % 50 == 0 else 40
            return now[0]

        quality = measures.clock_quality(read, 10_000)
        assert (quality.resolution_ns, quality.cost_ns, quality.scatter_ns) == (40, 40, 960)

    def test_a_clock_that_goes_back_is_a_problem(self) -> None:
        """However seldom."""
        clock = FakeClock(tick_ns=50)
        read, count = clock.read, iter(range(10**6))
        clock.read = lambda: read() - (10**6 if next(count) == 777 else 0)  # type: ignore[method-assign]
        found = measures.check_clock(clock)
        assert found.verdict is PROBLEM
        assert "went back 1 time" in found.message

    def test_a_clock_that_stands_still_is_a_problem(self) -> None:
        """It has no resolution at all."""
        assert measures.check_clock(FakeClock()).verdict is PROBLEM

    def test_events_of_a_device_are_measured_on_the_device(self) -> None:
        """By what a session would take for their limits."""
        clock = FakeDevice(FakeClock(tick_ns=2000)).device_clock()
        clock.limits = None
        found = measures.check_clock(clock)
        assert found.verdict is OK
        assert "events on fake: resolution 2.0 µs" in found.message

    def test_a_device_that_does_not_answer_cannot_be_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is waited for a while, and no longer."""
        monkeypatch.setattr(measures, "DEVICE_TIMEOUT_S", 0.0)
        clock = FakeDevice(FakeClock(), lag_ns=10**12).device_clock()
        clock.limits = None
        assert measures.check_clock(clock).verdict is UNKNOWN

    def test_the_limit_of_a_session_is_named(self) -> None:
        """Shorter spans are shown as less than it."""
        found = measures.check_clock(FakeClock(tick_ns=50, limit_ns=700))
        assert "shorter spans than 700 ns are shown with <" in found.message

    def test_the_price_is_the_least_of_several(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever else runs only adds to it."""
        prices = iter([MarkCost(900.0, 2000.0), MarkCost(500.0, 3000.0), *[MarkCost(800.0, 2500.0)] * 9])
        monkeypatch.setattr(measures, "measure_mark_cost", lambda _clock: next(prices))
        found = measures.check_mark_cost(measures.lowest_mark_cost(FakeClock()))
        assert found.data == {"forward_ns": 1000.0, "forward_backward_ns": 6000.0}
        assert "1.0 µs a call for forward, 6.0 µs" in found.message


class TestIdentity:
    """A profiled step against a bare one, to the last bit."""

    def test_a_healthy_model_is_identical(self) -> None:
        """Outputs, loss, gradients, parameters, buffers, random states."""
        found = identity_of(subject())
        assert found.verdict is OK
        # output, loss, 6 gradients, 6 parameters, 3 buffers, 3 random states
        assert found.data["compared"] >= 20
        assert not found.data["in_place"]

    def test_one_bit_of_an_output_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The smallest defect that the engine could have."""

        def change(module: nn.Module, _args: Any, output: torch.Tensor) -> Any:
            if not isinstance(module, nn.BatchNorm1d):
                return None
            bare = output.detach()  # torch 2.4 cannot differentiate nextafter
            return output + (torch.nextafter(bare, bare + 1) - bare)

        hook_every_target(monkeypatch, change)
        report = examine(subject())
        found = result_of(report, "identity")
        assert found.verdict is PROBLEM
        assert "output" in found.data["different"]
        assert "2 of 2 profiled steps differ, 3 bare ones agree" in found.message
        assert report.exit_status == 1

    def test_a_gradient_alone_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The output being equal."""

        def change(module: nn.Module, _args: Any, output: torch.Tensor) -> None:
            if isinstance(module, nn.BatchNorm1d):
                output.register_hook(lambda gradient: gradient * (1 + 2**-20))

        hook_every_target(monkeypatch, change)
        found = identity_of(subject())
        assert found.verdict is PROBLEM
        assert "gradient of a.weight" in found.data["different"]
        assert "output" not in found.data["different"]

    def test_a_random_number_drawn_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Even one that changes nothing in this step."""
        hook_every_target(monkeypatch, lambda module, *_: torch.rand(1) and None if module.training else None)
        model = nn.Sequential(nn.Linear(4, 4))
        assert identity_of(subject(model)).data["different"] == ["random state of torch"]

    def test_a_gradient_too_many_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the bare model has none."""
        hook_every_target(monkeypatch, lambda module, *_: setattr(module.b, "bias", nn.Parameter(torch.ones(4)))
                          if isinstance(module, Net) else None)  # fmt: skip
        assert identity_of(subject()).verdict is PROBLEM

    def test_a_step_that_fails_only_under_autoprof_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It runs bare."""

        def fail(*_: Any) -> None:
            raise RuntimeError("a hook raised")

        hook_every_target(monkeypatch, fail)
        report = examine(subject())
        assert "fails under autoprof: RuntimeError: a hook raised" in result_of(report, "identity").message
        assert report.exit_status == 1

    def test_a_model_that_differs_from_itself_is_not_blamed_on_autoprof(self) -> None:
        """Nothing can be compared, and that is said."""

        class Noisy(Net):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) * (1 + time.perf_counter_ns() % 100_003)

        report = examine(subject(Noisy()))
        found = result_of(report, "identity")
        assert found.verdict is UNKNOWN
        assert "the model itself is not deterministic" in found.message
        assert report.exit_status == 2

    def test_what_is_stable_of_such_a_model_is_compared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A part that differs by itself is a warning; a difference in the rest is a problem all the same."""

        class Partly(Net):
            def forward(self, x: torch.Tensor) -> Any:
                return super().forward(x), time.perf_counter_ns()

        found = identity_of(subject(Partly()))
        assert (found.verdict, found.data["unstable"]) == (WARNING, ["output[1]"])
        hook_every_target(
            monkeypatch, lambda module, _args, output: output + 1 if isinstance(module, nn.Dropout) else None
        )
        assert identity_of(subject(Partly())).verdict is PROBLEM

    def test_a_first_step_that_is_different_is_left_out(self) -> None:
        """Something was set up in it; from then on bare steps agree."""
        ran: list[int] = []

        class First(Net):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                ran.append(1)
                return super().forward(x) + (len(ran) == 1)

        assert identity_of(subject(First())).verdict is OK

    def test_a_model_that_is_seldom_different_is_found_out(self) -> None:
        """A mismatch is followed by further bare steps before anybody is blamed."""
        state = {"bare": 0}

        class Seldom(Net):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                hooked = bool(self.a._forward_hooks)
                state["bare"] += not hooked
                odd = hooked or state["bare"] > 12  # each bare trial runs six steps: the third one is different
                return super().forward(x) + odd

        found = identity_of(subject(Seldom()))
        assert found.verdict is UNKNOWN
        assert "the model itself is not deterministic" in found.message

    def test_random_numbers_of_numpy_and_python_are_repeated(self) -> None:
        """They count as deterministic."""
        import random

        import numpy as np

        class Draws(Net):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) * random.random() + np.random.rand()

        assert identity_of(subject(Draws())).verdict is OK

    def test_a_model_without_gradients_is_compared_forward_only(self) -> None:
        """And it says so."""
        found = identity_of(subject(Net().eval().requires_grad_(False)))
        assert found.verdict is OK
        assert "forward only" in found.message

    def test_a_lazy_model_is_compared(self) -> None:
        """Its weights come to be in the step."""
        assert identity_of(subject(nn.Sequential(nn.LazyLinear(2)))).verdict is OK

    def test_the_model_given_is_not_changed(self) -> None:
        """Copies are trained."""
        one = subject()
        before = [digest(tensor) for tensor in one.model.state_dict().values()]
        identity_of(one)
        assert [digest(tensor) for tensor in one.model.state_dict().values()] == before
        assert all(weight.grad is None for weight in one.model.parameters())


class TestModelsThatCannotBeCopied:
    """They are trained themselves, and put back."""

    def test_a_model_that_refuses_a_copy_is_compared_and_put_back(self) -> None:
        """Here it holds a lock."""
        model = Net()
        model.lock = threading.Lock()  # type: ignore[assignment]
        model.a.eval()
        one = subject(model)
        trials = Trials(one, EVERY)
        before = [digest(tensor) for tensor in model.state_dict().values()]
        found = checks.compare_trials(trials)[0]
        assert (found.verdict, found.data["in_place"]) == (OK, True)
        assert [digest(tensor) for tensor in model.state_dict().values()] == before
        assert (model.a.training, model.b.training) == (False, True)
        assert all(weight.grad is None for weight in model.parameters())

    def test_a_defect_is_found_there_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same model, with and without."""
        hook_every_target(monkeypatch, lambda _module, _args, output: output * 2)
        model = Net()
        model.lock = threading.Lock()  # type: ignore[assignment]
        assert identity_of(subject(model)).verdict is PROBLEM

    @scripting
    def test_the_gradients_of_a_scripted_model_are_compared(self) -> None:
        """Copies of it have weights that get none."""
        model = nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU())))
        _, bare, _ = checks.compare_trials(Trials(subject(model), EVERY))
        assert "gradient of 0.0.weight" in bare[0].digests

    def test_a_compiled_model_is_not_compiled_for_each_trial(self) -> None:
        """It is compared in place."""
        compiled: list[Any] = []

        def backend(graph: Any, _inputs: Any) -> Any:
            compiled.append(graph)
            return graph

        torch._dynamo.reset()
        model = nn.Sequential(torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend=backend))
        report = examine(subject(model))
        assert result_of(report, "identity").verdict is OK
        assert len(compiled) == 1
        if torch.__version__ >= (2, 5):  # before, the graph calls the modules, and their hooks fire
            assert {one.fqn for one in report.modules if one.reason is Reason.COMPILED} == {"0.0", "0.1"}

    def test_one_that_cannot_run_is_said_to_be_so(self) -> None:
        """In one line, with the line of the user's code."""

        class Fails(Net):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                raise ValueError("the user's own")

        model = Fails()
        model.lock = threading.Lock()  # type: ignore[assignment]
        with pytest.raises(
            AutoprofError, match=r"fails already: ValueError: the user's own \(at .*test_doctor.py:\d+\)"
        ):
            Trials(subject(model), EVERY)


class TestLeavingNothing:
    """The hooks after ``close``."""

    def test_a_healthy_session_leaves_nothing(self) -> None:
        """The user's own hooks stay."""
        model = Net()
        model.a.register_forward_hook(lambda *_: None)
        assert checks.check_hooks_removed(Trials(subject(model), EVERY).profiled()).verdict is OK

    def test_a_hook_left_behind_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the module that has it."""
        attach = ModuleProbe.attach

        def defective(self: ModuleProbe) -> None:
            attach(self)
            if isinstance(self.module, nn.BatchNorm1d):
                self.module.register_forward_hook(lambda *_: None)

        monkeypatch.setattr(ModuleProbe, "attach", defective)
        found = checks.check_hooks_removed(Trials(subject(), EVERY).profiled())
        assert found.verdict is PROBLEM
        assert "norm" in found.message


class TestCoverage:
    """Which modules are seen."""

    def test_an_ordinary_model_is_seen_whole(self) -> None:
        """Every module that can be called."""
        found = result_of(examine(subject()), "visibility")
        assert (found.verdict, found.message) == (OK, "5 of 5 modules that can be called are seen")

    def test_containers_are_counted_apart(self) -> None:
        """They are no fault."""

        class Listed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(4, 4)])

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.layers[0](x)

        report = examine(subject(Listed()))
        assert result_of(report, "visibility").verdict is OK
        assert [one.reason for one in report.modules] == [None, Reason.CONTAINER, None]

    @scripting
    def test_modules_that_hide_are_a_warning(self) -> None:
        """One whose forward is called directly, and one inside a scripted module; it stays safe."""

        class Hides(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.direct = nn.Linear(4, 4)
                self.script = torch.jit.script(nn.Sequential(nn.Linear(4, 4)))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.script(self.direct.forward(x))

        report = examine(subject(Hides()))
        found = result_of(report, "visibility")
        assert found.verdict is WARNING
        assert "1 direct" in found.message
        assert "1 scripted" in found.message
        assert {one.fqn: one.reason for one in report.modules if one.reason} == {
            "direct": Reason.DIRECT,
            "script.0": Reason.SCRIPTED,
        }
        assert report.exit_status == 0

    def test_a_target_that_the_step_does_not_reach_is_a_warning(self) -> None:
        """Where the user asked for it; where nobody did, it is only listed."""

        class Unused(Net):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.a(x)

        config = parse_config("{targets: [{match: b}, {match: a}], sinks: {}}")
        report = examine(subject(Unused()), config)
        assert [(one.fqn, one.reason) for one in report.modules] == [("a", None), ("b", Reason.UNCALLED)]
        assert result_of(report, "visibility").verdict is WARNING
        assert result_of(examine(subject(Unused())), "visibility").verdict is OK

    def test_a_rule_for_backward_alone_is_seen_by_it(self) -> None:
        """It has no forward span."""
        config = parse_config("{targets: [{match: a, phases: [backward]}], sinks: {}}")
        assert result_of(examine(subject(), config), "visibility").verdict is OK

    def test_another_profiler_is_said_to_blind_it(self) -> None:
        """Direct calls cannot be told apart then."""
        found = checks.check_coverage(Observed(False, (Coverage("a", "Net", True),), {}, None), chosen=False)
        assert "another Python profiler" in found.message

    def test_a_step_that_fails_while_watched_is_not_checked(self) -> None:
        """It is no verdict on the model."""
        assert checks.check_coverage(Observed(True, (), {}, "KeyError"), chosen=False).verdict is UNKNOWN


def span(name: str, start: int, ns: int, parent: int | None = None, phase: Phase = Phase.FORWARD) -> Span:
    """Return a span of the training thread."""
    return Span(name, name, phase, parent, start, ns)


def profiled(*spans: Span, duration_ns: int | None = None, skipped: dict[str, int] | None = None) -> Profiled:
    """Return the outcome of a trial with one frame."""
    summary = Summary(**{**{f: getattr(Summary.empty(), f) for f in Summary.__slots__}, "skipped": skipped or {}})
    return Profiled(frames=[make_frame(spans, duration_ns=duration_ns)], summary=summary, trained=True)


class TestAccount:
    """Whether spans nest and add up."""

    def test_a_real_step_closes(self) -> None:
        """All its frames."""
        trial = Trials(subject(), EVERY).profiled()
        assert checks.check_account(trial).verdict is OK
        assert len(trial.frames) > 1

    @pytest.mark.parametrize(
        ("spans", "duration_ns", "fault"),
        [
            ([span("p", 0, 10), span("c", 0, 11, 0)], 20, "children are longer than their parent"),
            ([span("p", 5, 10), span("c", 4, 2, 0)], 20, "a span lies outside its parent"),
            ([span("p", 0, -3)], 20, "a span ends before it starts"),
            ([span("p", 0, 30)], 20, "phases are longer than the step"),
        ],
    )
    def test_an_account_that_does_not_close_is_a_problem(self, spans: list[Span], duration_ns: int, fault: str) -> None:
        """With the law that is broken."""
        found = checks.check_account(profiled(*spans, duration_ns=duration_ns))
        assert found.verdict is PROBLEM
        assert fault in found.message

    def test_what_was_lost_is_a_warning(self) -> None:
        """With its reason."""
        found = checks.check_account(profiled(span("p", 0, 10), skipped={"marks without a counterpart": 3}))
        assert found.verdict is WARNING
        assert "3 marks without a counterpart" in found.message

    def test_no_step_at_all_is_a_problem(self) -> None:
        """Something should have been resolved."""
        assert checks.check_account(Profiled()).verdict is PROBLEM


class TestBackward:
    """Calls that receive a gradient have a backward span."""

    def test_every_call_of_a_real_step(self) -> None:
        """Counted by hooks of the referee's own."""
        found = result_of(examine(subject()), "backward")
        assert (found.verdict, found.message) == (OK, "5 of 5 calls that received a gradient have a backward span")

    def test_calls_without_a_span_are_a_warning(self) -> None:
        """With the modules and how many."""
        one = profiled(span("a", 0, 5), span("a", 6, 5, phase=Phase.BACKWARD))
        found = checks.check_backward(one, Observed(True, (), {"a": 3, "b": 1}, None))
        assert found.verdict is WARNING
        assert found.message == "1 of 4 calls that received a gradient have a backward span; not a, b"
        assert found.data["lacking"] == {"a": 2, "b": 1}

    def test_a_detached_branch_is_no_call_with_a_gradient(self) -> None:
        """Its output has a node, but none that runs."""

        class Detached(Net):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.a(x) + self.b(x).detach()

        assert "2 of 2 calls" in result_of(examine(subject(Detached())), "backward").message

    def test_without_gradients_there_is_nothing_to_check(self) -> None:
        """And nothing to blame."""
        assert checks.check_backward(Profiled(), Observed(True, (), {}, None)).verdict is OK


class TestOverhead:
    """The cost, projected on the model's step."""

    def _found(self, sample: Sample, *, chosen: bool) -> Result:
        frames = [make_frame([span("a", 0, 5)], overhead_ns=ns) for ns in (1, 20_000, 90_000)]
        bare = [Outcome(step_ns=[1_000_000, 9_000_000, 1_000_000]), Outcome(step_ns=[2_000_000])]
        return checks.check_overhead(bare, Profiled(frames=frames), sample, chosen=chosen)

    def test_it_is_the_least_disturbed_cost_over_the_least_disturbed_step(self) -> None:
        """The first frame, which warms up, does not count."""
        assert self._found(Sample(budget=None), chosen=True).data["share"] == pytest.approx(0.02)

    def test_steps_that_are_not_recorded_cost_nothing(self) -> None:
        """One in four."""
        assert self._found(Sample(every=4), chosen=True).data["share"] == pytest.approx(0.005)

    def test_more_than_the_budget_is_a_warning(self) -> None:
        """Where the targets are the user's."""
        assert self._found(Sample(budget=0.01), chosen=True).verdict is WARNING
        assert self._found(Sample(budget=0.05), chosen=True).verdict is OK
        assert self._found(Sample(budget=0.01), chosen=False).verdict is OK

    def test_one_step_alone_says_nothing(self) -> None:
        """It is long for other reasons."""
        assert checks.check_overhead([Outcome()], Profiled(), Sample(), chosen=True).verdict is UNKNOWN


class TestSubjects:
    """How a model is called, and what is made of its output."""

    @pytest.mark.parametrize(
        ("batch", "expected"),
        [((1, 2), ((1, 2), {})), ({"x": 1}, ((), {"x": 1})), ([1, 2], (([1, 2],), {})), (None, ((None,), {}))],
    )
    def test_a_batch_becomes_arguments(self, batch: Any, expected: Any) -> None:
        """A tuple, a mapping, anything else."""

        class Takes(nn.Module):
            def forward(self, *args: Any, **kwargs: Any) -> Any:
                return args, kwargs

        one = subject(Takes(), batch=batch)
        assert one.call(one.model, batch) == expected

    def test_a_loss_may_want_the_batch_as_well(self) -> None:
        """A module such as ``nn.MSELoss``, a function of one or of two, an optional second argument."""
        output, batch = torch.ones(2, requires_grad=True), torch.zeros(2)
        for loss, value in (
            (nn.MSELoss(), 1.0),
            (lambda out: out.sum(), 2.0),
            (lambda out, given: (out + given).sum() * 2, 4.0),
            (lambda out, scale=3: out.sum() * scale, 6.0),
        ):
            found = subject(batch=batch, loss=loss).loss_of(output, batch)
            assert found is not None
            assert found.item() == value

    def test_without_a_loss_the_output_may_bring_one(self) -> None:
        """By its attribute or its key."""
        loss = torch.ones(1, requires_grad=True)
        assert subject().loss_of({"loss": loss, "logits": torch.ones(3)}, None) is loss
        assert subject().loss_of(SimpleNamespace(loss=loss), None) is loss

    def test_without_any_loss_every_tensor_counts(self) -> None:
        """Those with a gradient, wherever they are in the output."""
        one, two = torch.ones(2, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
        found = subject().loss_of((one, {"deep": [two, torch.ones(4), "text"]}), None)
        assert found is not None
        assert found.item() == 5.0
        assert subject().loss_of(torch.ones(2), None) is None

    @pytest.mark.parametrize(
        ("loss", "shown"), [(lambda out: out, "a tensor of 2 elements"), (lambda out: 1.0, "float")]
    )
    def test_a_loss_that_is_no_single_number_is_refused(self, loss: Any, shown: str) -> None:
        """With what it is."""
        with pytest.raises(AutoprofError, match=shown):
            subject(loss=loss).loss_of(torch.ones(2, requires_grad=True), None)

    def test_a_rule_that_matches_nothing_is_an_error(self) -> None:
        """As it is in ``instrument``."""
        with pytest.raises(TargetError):
            examine(subject(), parse_config("targets: [{match: nothing}]"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2), torch.ones(2, 1)),
        (torch.tensor(complex(1, 0)), torch.tensor(complex(1, -0.0))),
        (torch.eye(2).to_sparse(), (2 * torch.eye(2)).to_sparse()),
        (torch.eye(2).to_sparse(), torch.eye(2)),
        (torch.tensor(True), torch.tensor(False)),
        (torch.ones(2, dtype=torch.bfloat16), torch.full((2,), 1.0078125, dtype=torch.bfloat16)),
        (torch.empty(0, 2), torch.empty(0, 3)),
        (torch.empty(2, device="meta"), torch.empty(3, device="meta")),
    ],
)
def test_a_digest_tells_bits_apart(one: torch.Tensor, other: torch.Tensor) -> None:
    """What ``torch.equal`` may call equal, too; and a copy, contiguous or not, has the same one."""
    assert digest(one) != digest(other)
    assert digest(one) == digest(one.clone())


def test_not_a_number_is_equal_to_itself_bit_by_bit() -> None:
    """``torch.equal`` says the opposite."""
    assert digest(torch.tensor([float("nan")])) == digest(torch.tensor([float("nan")]))


def test_the_random_state_is_restored() -> None:
    """torch's, numpy's and Python's."""
    import random

    import numpy as np

    state = RandomState.read()
    drawn = (torch.rand(1).item(), np.random.rand(), random.random())
    state.restore()
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == drawn


FACTORIES = """
import torch
from torch import nn

print("printed by the user's module")

def healthy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)

def with_loss():
    return nn.Linear(4, 4), (torch.randn(2, 4),), lambda output: output.sum()

def alone():
    return nn.Linear(4, 4)

def batch():
    return torch.randn(2, 4)

ready = nn.Linear(4, 4)

def raises():
    raise KeyError("no weights")

def needs(path):
    return None

def nothing():
    return 3

def four():
    return nn.ReLU(), 1, None, 2

def odd_loss():
    return nn.ReLU(), 1, 7

def exits():
    raise SystemExit(3)
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write the user's module into the working directory."""
    (tmp_path / "their_training.py").write_text(FACTORIES)
    path = sys.path[:]
    yield "their_training"
    sys.path[:] = path
    sys.modules.pop("their_training", None)


class TestFactories:
    """What ``--model`` and ``--input`` take."""

    @pytest.mark.parametrize("name", ["healthy", "with_loss"])
    def test_a_model_comes_with_its_batch(self, factories: str, name: str) -> None:
        """And perhaps its loss."""
        assert load_subject(f"{factories}:{name}").runnable

    @pytest.mark.parametrize("name", ["alone", "ready"])
    def test_a_model_may_come_alone_and_the_batch_apart(self, factories: str, name: str) -> None:
        """A factory, or a model that is there already."""
        assert not load_subject(f"{factories}:{name}").runnable
        assert load_subject(f"{factories}:{name}", f"{factories}:batch").runnable

    @pytest.mark.parametrize(
        ("model", "batch", "words"),
        [
            ("their_training", None, "package.module:factory"),
            ("no_such_module:x", None, "cannot import 'no_such_module'"),
            ("their_training:helthy", None, "did you mean 'healthy'"),
            ("their_training:raises", None, r"KeyError: 'no weights' \(at .*their_training.py:\d+\)"),
            ("their_training:needs", None, "callable without arguments"),
            ("their_training:nothing", None, r"returns a int; allowed: a model, \(model, batch\)"),
            ("their_training:four", None, r"returns \(ReLU, int, NoneType, int\)"),
            ("their_training:odd_loss", None, "its loss is a int"),
            ("their_training:exits", None, "SystemExit: 3"),
            ("their_training:healthy", "their_training:batch", "returns a batch already"),
            ("their_training:alone", "their_training:raises", "--input their_training:raises: calling it failed"),
        ],
    )
    def test_what_cannot_be_used_is_one_line(self, factories: str, model: str, batch: str | None, words: str) -> None:
        """It names the option, what is wrong and what is allowed."""
        with pytest.raises(AutoprofError, match=words) as raised:
            load_subject(model, batch)
        assert "\n" not in str(raised.value)


class TestCommand:
    """``autoprof doctor``."""

    def test_the_built_in_model_is_safe(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Every check that can fail is fine, and the exit status is 0."""
        assert main(["doctor"]) == 0
        shown = capsys.readouterr().out
        assert "the built-in reference model" in shown
        assert "not checked" not in shown
        assert "stage8 (ModuleList)" in " ".join(shown.split())

    def test_a_users_model_is_reported_as_data(self, factories: str, capsys: pytest.CaptureFixture[str]) -> None:
        """``--json`` is nothing but JSON, whatever the user's code prints."""
        assert main(["doctor", "--model", f"{factories}:healthy", "--json"]) == 0
        printed = capsys.readouterr()
        found = json.loads(printed.out)
        assert found["exit_status"] == 0
        verdicts = {check["check"]: check["verdict"] for check in found["checks"]}
        assert verdicts["identity"] == verdicts["account"] == verdicts["leaves-nothing"] == "ok"
        assert [one["fqn"] for one in found["modules"]] == ["", "0", "1"]
        assert "printed by the user's module" in printed.err

    def test_a_model_without_a_batch_cannot_be_checked(
        self, factories: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It says how to give one, and tells what is certain without."""
        assert main(["doctor", "--model", f"{factories}:alone"]) == 2
        assert "--input" in capsys.readouterr().out

    def test_a_folder_that_cannot_be_written_is_not_safe(
        self, factories: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Exit status 1."""
        (tmp_path / "taken").write_text("")
        (tmp_path / "run.yaml").write_text("{targets: [{match: '0'}], output: taken/runs}")
        assert main(["doctor", "--model", f"{factories}:healthy", "--config", "run.yaml"]) == 1
        assert "not safe" in capsys.readouterr().out

    def test_warnings_alone_are_safe(
        self, factories: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The kill switch is one; the trials are made all the same, and it is set as before."""
        monkeypatch.setenv("AUTOPROF", "0")
        monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
        assert main(["doctor", "--model", f"{factories}:healthy", "--json"]) == 0
        found = {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
        assert found["switch"]["verdict"] == found["connections"]["verdict"] == "warning"
        assert "3 of 3" in found["visibility"]["message"]
        assert os.environ["AUTOPROF"] == "0"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--input", "a:b"], "together with --model"),
            (["--model", "nope:x"], "cannot import"),
            (["--config", "nope.yaml"], "there is no such file"),
        ],
    )
    def test_what_cannot_be_used_is_a_message(
        self, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """No traceback, exit status 2."""
        assert main(["doctor", *arguments]) == 2
        message = capsys.readouterr().err
        assert words in message
        assert "Traceback" not in message

    def test_a_users_configuration_is_what_is_checked(
        self, factories: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Its targets alone; and no run is written."""
        (tmp_path / "run.yaml").write_text("{targets: [{match: '0'}], output: runs}")
        assert main(["doctor", "--model", f"{factories}:healthy", "--config", "run.yaml", "--json"]) == 0
        assert [one["fqn"] for one in json.loads(capsys.readouterr().out)["modules"]] == ["0"]
        assert not (tmp_path / "runs").exists()


class TestTable:
    """The report for people."""

    def _report(self) -> Report:
        hidden = [Coverage(f"block.{i}.attention.projection", "Linear", False, Reason.DIRECT) for i in range(30)]
        partly = Coverage("时间/\x1b[2J", "Linear", True, Reason.DIRECT, None, 2, 1)
        results = (
            Result("one", OK, "fine"),
            Result("two", WARNING, "a sentence " * 20, "do this " * 20),
            Result("three", PROBLEM, "a path " + "/x" * 120),
        )
        return Report("train:make", results, (*hidden, partly))

    @pytest.mark.parametrize("width", [40, 80, 200])
    def test_no_line_is_wider_than_the_terminal(self, width: int) -> None:
        """And nothing acts on it where it is piped."""
        from rich.cells import cell_len

        text = render_report(self._report(), width=width, color=False)
        assert max(cell_len(line) for line in text.splitlines()) <= width
        assert "\x1b" not in text
        assert "not safe" in text

    def test_many_modules_are_counted(self) -> None:
        """By reason, the first ones named."""
        text = " ".join(render_report(self._report(), width=200, color=False).split())
        assert "31 its .forward() is called directly" in text
        assert "and 23 more" in text

    def test_colours_are_for_terminals(self) -> None:
        """Only if asked for."""
        assert "\x1b[" in render_report(self._report(), width=80, color=True)

    def test_an_encoding_without_arrows_gets_none(self) -> None:
        """Every character can be written."""
        text = render_report(self._report(), width=80, color=False, encoding="ascii")
        assert text.isascii()
        assert "-> do this" in text

    @pytest.mark.parametrize(
        ("verdicts", "status"),
        [([OK, WARNING], 0), ([OK, UNKNOWN], 2), ([UNKNOWN, PROBLEM, WARNING], 1), ([], 0)],
    )
    def test_verdicts_add_up_to_an_exit_status(self, verdicts: list[CheckVerdict], status: int) -> None:
        """A problem is worse than what could not be checked, and that is worse than a warning."""
        assert Report("x", tuple(Result("c", verdict, "w") for verdict in verdicts)).exit_status == status
