"""The parts of the evidence: each answers one question with one command, and writes one page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .digest import ROOT

RESULTS: Final = ROOT / "benchmarks" / "results"
BUILD: Final = ROOT / "build" / "evidence"
"""The folder of raw results and of pages without a header; git ignores it."""
CHECKOUTS: Final = Path(os.environ.get("EVIDENCE_CHECKOUTS", BUILD / "checkouts"))
"""The folder of the repositories whose scripts are run."""
_COST: Final = ("capture", "base", "resolve", "session", "base/stats", "sinks")
_PROGRAMS: Final = ("capture", "probes/metrics", "resolve", "session", "base/stats", "targets", "diagnose")
_ZOO: Final = ("torchvision", "timm", "transformers", "diffusers")
_SCRIPTS: Final = (*_ZOO, "accelerate", "datasets", "evaluate", "gymnasium", "lightning", "sklearn", "trl", "tyro")


@dataclass(frozen=True, slots=True)
class Part:
    """A question, the command that answers it, and the code that the answer is about.

    In the command ``{page}`` is the file of the page, ``{raw}`` the file of the raw results.
    """

    name: str
    question: str
    command: str
    rooms: tuple[str, ...]
    """Folders of ``autoprof``."""
    minutes: int
    """About how long it takes on two quiet cores."""
    quick: str = "--quick"
    """The options of a run that only shows that the command works."""
    packages: tuple[str, ...] = ()
    needs: str = ""
    """What the part needs that a computer without a GPU, with the network and the packages, does not give."""

    @property
    def page(self) -> Path:
        """The page in git."""
        return RESULTS / f"{self.name}.md"

    @property
    def code(self) -> tuple[str, ...]:
        """The folders that the page speaks of, from the repository's root."""
        return tuple(f"autoprof/{room}" for room in self.rooms)

    @property
    def is_for_any_computer(self) -> bool:
        """Whether the page can be measured again without a GPU."""
        return not self.needs

    def missing(self) -> str:
        """Return what is not there; empty where the part can run."""
        if self.needs == GPU:
            import torch

            return "" if torch.cuda.is_available() else self.needs
        if self.needs:
            return self.needs
        packages = [name for name in self.packages if find_spec(name) is None]
        if packages:
            return f"the packages {', '.join(packages)}"
        if self.name == "scripts" and not CHECKOUTS.is_dir():
            return f"the checkouts that python -m benchmarks.scripts.prepare {CHECKOUTS} makes"
        return ""


GPU: Final = "a GPU"
ONCE: Final = "a first reading, which cannot be repeated"
_ACCEPTANCE: Final = "tests.acceptance --minutes 18 --page {page} --json {raw}"
PARTS: Final = (
    Part("module", "What does a module cost?", "benchmarks.module --page {page} --raw {raw}", _COST, 6),
    Part(
        "steps",
        "What do whole steps and processes cost, how long are the longest steps, and does memory grow?",
        "benchmarks.steps --page {page} --raw {raw}",
        (*_COST, "frontends/launch", "probes/metrics", "base/storage"),
        15,
    ),
    Part(
        "truth",
        "Are module times true?",
        "benchmarks.truth --page {page} --raw {raw}",
        ("capture", "base", "resolve"),
        6,
        packages=_ZOO[:3],
    ),
    Part(
        "programs_times",
        "Are the default's times, steps and rows right?",
        f"{_ACCEPTANCE} --part times",
        _PROGRAMS,
        15,
        quick="--only ^checkpoint_child",
    ),
    Part(
        "programs_causes",
        "Are the default's causes right?",
        f"{_ACCEPTANCE} --part causes",
        _PROGRAMS,
        15,
        quick="--only ^queue_runs_dry",
    ),
    Part(
        "programs_busy",
        "Is the default right on a busy machine?",
        f"{_ACCEPTANCE} --part busy",
        _PROGRAMS,
        7,
        quick="--only ^checkpoint_child",
    ),
    Part(
        "zoo",
        "Are results unchanged?",
        "tests.zoo --each 2 --page {page}",
        ("capture", "base", "base/process", "compat", "probes"),
        10,
        packages=_ZOO,
    ),
    Part(
        "compiled_known",
        "Are rows inside compiled graphs true?",
        "benchmarks.compiled known --page {page} --raw {raw}",
        ("capture",),
        12,
    ),
    Part(
        "compiled_models",
        "Has every kernel of compiled models an owner?",
        "benchmarks.compiled models --page {page} --raw {raw}",
        ("capture",),
        8,
        packages=("transformers",),
    ),
    Part(
        "ranks", "What does it cost on several ranks?", "benchmarks.ranks --page {page} --raw {raw}",
        ("ranks", "session"), 6
    ),
    Part(
        "rank_faults",
        "Is the slow rank named?",
        "benchmarks.rank_faults --page {page} --raw {raw}",
        ("ranks", "diagnose"),
        12,
    ),
    Part(
        "scripts",
        "Does `autoprof run` find the training?",
        f"benchmarks.scripts --checkouts {CHECKOUTS} --page {{page}} --raw {{raw}}",
        ("frontends/launch", "session", "targets"),
        6,
        packages=_SCRIPTS,
    ),
    Part("gpu", "What does it cost on a GPU?", "benchmarks.gpu --page {page} --raw {raw}",
         (*_COST[:-1], "devices"), 9, "--device sim --quick", needs=GPU),
    Part(
        "gpu_programs",
        "Are the claims of reports right on a GPU?",
        "tests/gpu/programs/run_all.py {raw}.runs --page {page}",
        (*_PROGRAMS, "devices"),
        10,
        needs=GPU,
    ),
    Part(
        "gpu_compiled",
        "What does compilation gain, by module?",
        "benchmarks.gpu.compiled --page {page}",
        ("capture", "devices"),
        5,
        needs=GPU,
    ),
    Part("first_readings", "Is it right on programs that its authors have not seen?", "", (), 0, needs=ONCE),
)  # fmt: skip
BY_NAME: Final = {part.name: part for part in PARTS}
