"""``autoprof doctor``: each check in a healthy case and in one with the defect that it finds."""

import itertools
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from autoprof.capture.hooks.module import ModuleProbe
from autoprof.frontends.cli import main
from autoprof.frontends.doctor import CheckVerdict, Report, Result, Subject, examine
from autoprof.frontends.doctor.trial import digest

OK, WARNING, PROBLEM, UNKNOWN = CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.PROBLEM, CheckVerdict.UNKNOWN


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOPROF", raising=False)
    torch.manual_seed(0)


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
    """Return the result of the comparison."""
    return result_of(examine(one), "identity")


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


class TestIdentity:
    """A profiled step against a bare one, to the last bit."""

    def test_a_healthy_model_is_identical(self) -> None:
        """Outputs, loss, gradients, parameters, buffers, random states."""
        found = identity_of(subject())
        assert found.verdict is OK
        # of each step: output, loss, 6 gradients; then 6 parameters, 3 buffers, 3 random states
        assert found.data["compared"] >= 30

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
        assert "output of step 1" in found.data["different"]
        assert report.exit_status == 1

    def test_a_model_that_differs_from_itself_is_not_blamed_on_autoprof(self) -> None:
        """Nothing can be compared, and that is said."""

        calls = itertools.count()

        class Noisy(Net):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) * (1 + next(calls) / 100)

        report = examine(subject(Noisy()))
        found = result_of(report, "identity")
        assert found.verdict is UNKNOWN
        assert "the model itself is not deterministic" in found.message
        assert report.exit_status == 2

    def test_a_model_starts_each_trial_from_the_same_state(self) -> None:
        """Weights, buffers and modes are restored, also of a model that cannot be copied."""
        model = Net()
        model.lock = threading.Lock()  # type: ignore[assignment]
        model.a.eval()
        assert identity_of(subject(model)).verdict is OK
        assert (model.a.training, model.b.training) == (False, True)
        assert all(weight.grad is None for weight in model.parameters())


class TestLeavingNothing:
    """The hooks after ``close``."""

    def test_a_hook_left_behind_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the module that has it."""
        attach = ModuleProbe.attach

        def defective(self: ModuleProbe) -> None:
            attach(self)
            if isinstance(self.module, nn.BatchNorm1d):
                self.module.register_forward_hook(lambda *_: None)

        monkeypatch.setattr(ModuleProbe, "attach", defective)
        found = result_of(examine(subject()), "leaves-nothing")
        assert found.verdict is PROBLEM
        assert "norm" in found.message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.tensor(complex(1, 0)), torch.tensor(complex(1, -0.0))),
        (torch.eye(2).to_sparse(), (2 * torch.eye(2)).to_sparse()),
        (torch.ones(2, dtype=torch.bfloat16), torch.full((2,), 1.0078125, dtype=torch.bfloat16)),
        (torch.empty(0, 2), torch.empty(0, 3)),
    ],
)
def test_a_digest_tells_bits_apart(one: torch.Tensor, other: torch.Tensor) -> None:
    """What ``torch.equal`` may call equal, too; and a copy, contiguous or not, has the same one."""
    assert digest(one) != digest(other)
    assert digest(one) == digest(one.clone())


FACTORIES = """
import torch
from torch import nn

print("printed by the user's module")

def healthy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)

def alone():
    return nn.Linear(4, 4)

"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write the user's module into the working directory."""
    (tmp_path / "their_training.py").write_text(FACTORIES)
    path = sys.path[:]
    yield "their_training"
    sys.path[:] = path
    sys.modules.pop("their_training", None)


class TestCommand:
    """``autoprof doctor``."""

    def test_a_missing_extension_is_a_line_of_the_table(
        self, factories: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """All other checks are shown, too."""
        monkeypatch.setattr("autoprof.capture.marks.native.extension", None)
        assert main(["doctor", "--model", f"{factories}:healthy"]) == 1
        shown = " ".join(capsys.readouterr().out.split())
        assert "problem installation autoprof's extension in C was built from other sources" in shown
        assert "not checked identity no session opens here: nothing can be recorded" in shown

    def test_the_built_in_model_is_safe(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Every check that can fail is fine, and the exit status is 0."""
        assert main(["doctor"]) == 0
        shown = capsys.readouterr().out
        assert "the built-in reference model" in shown
        assert "not checked" not in shown

    def test_a_users_model_is_reported_as_data(self, factories: str, capsys: pytest.CaptureFixture[str]) -> None:
        """``--json`` is nothing but JSON, whatever the user's code prints."""
        assert main(["doctor", "--model", f"{factories}:healthy", "--json"]) == 0
        printed = capsys.readouterr()
        found = json.loads(printed.out)
        assert found["exit_status"] == 0
        verdicts = {check["check"]: check["verdict"] for check in found["checks"]}
        assert verdicts["identity"] == verdicts["leaves-nothing"] == "ok"
        assert "printed by the user's module" in printed.err

    def test_a_model_without_a_batch_cannot_be_checked(
        self, factories: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It says how to give one, and tells what is certain without."""
        assert main(["doctor", "--model", f"{factories}:alone"]) == 2
        assert "return a model, (model, batch)" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--model", "nope:x"], "cannot import"),
            (["--config", "nope.yaml"], "No such file"),
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
