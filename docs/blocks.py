"""Run the code blocks of the documentation and write their output into the pages: ``python -m docs.blocks PAGE …``.

Every fenced block of a page is one of these:

- ``python``: a program of its own, run after ``docs/prelude.py``;
- ``console``: its commands; in a block with ``$`` the lines without it are the output;
- ``text``: the output of the block before it, if ``<!-- output -->`` stands above it;
- ``diff``: a change of ``train.py`` in the page's folder, which is made;
- ``yaml``, ``toml``, ``json``: checked by its reader.

A comment above a block changes that:

- ``<!-- file: train.yaml -->`` writes the block into the page's folder;
- ``<!-- goes on -->`` runs a Python block after the Python blocks before it, in one program;
- ``<!-- from: REGEX -->``, ``<!-- to: REGEX -->`` keep a part of the output: from the first line that matches, to the
  next line that matches, which is left out;
- ``<!-- exit status: N -->`` is the status of the block's commands; ``any`` is 0 or 1;
- ``<!-- tested by: tests/x.py -->`` names the test that uses the block;
- ``<!-- not run: REASON -->`` says why it is not run.

A page's folder has ``examples``, ``configs`` and ``train.py``, which is a copy of ``examples/slow_training.py``. A page
with ``<!-- runs -->`` finds six short runs in ``runs``: ``base-1`` to ``base-3`` and ``change-1`` to ``change-3``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PRELUDE: Final = (ROOT / "docs/prelude.py").read_text("utf-8")
PLACEHOLDERS: Final = {"RUN_A": "runs/base-1", "RUN_B": "runs/change-1", "RUN": "runs/base-1"}
LIMIT_S: Final = 600
_FENCE: Final = re.compile(
    r"(?P<comments>(?:^<!-- (?!end|begin)[^\n]*-->\n)*)^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_COMMENT: Final = re.compile(r"<!-- ([^:\n]+?)(?:: (.*?))? -->")
_SHIM: Final = '#!/bin/sh\nexec {python} -m {module} "$@"\n'


@dataclass(frozen=True)
class Block:
    """A fenced block: ``notes`` are the comments above it, ``start`` and ``end`` the place of its text in the page."""

    page: Path
    line: int
    language: str
    text: str
    notes: dict[str, str] = field(hash=False)
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def has_prompt(self) -> bool:
        """Whether the block is a session with commands after ``$`` and their output."""
        return self.language == "console" and self.text.startswith("$ ")

    def commands(self) -> list[str]:
        """Return the commands of a console block; a backslash at the end of a line continues it."""
        text = self.text.replace("\\\n", " ")
        if self.has_prompt:
            return [line[2:] for line in text.splitlines() if line.startswith("$ ")]
        return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]

    def outputs(self) -> list[str]:
        """Return the documented output of each command of a console block."""
        parts = re.split(r"^\$ .*\n", self.text.replace("\\\n", " "), flags=re.MULTILINE)
        return parts[1:] if self.has_prompt else []


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in their order."""
    text = page.read_text("utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, match.start("language")) + 1,
            match["language"],
            match["text"],
            {key: value or "" for key, value in _COMMENT.findall(match["comments"])},
            match.start("text"),
            match.end("text"),
        )
        for match in _FENCE.finditer(text)
    ]


def needs_runs(page: Path) -> bool:
    """Tell whether a page's commands read saved runs."""
    return "<!-- runs -->" in page.read_text("utf-8")


class Folder:
    """The working folder of a page, in which its blocks run one after another."""

    def __init__(
        self,
        path: Path,
        runs: Path | None = None,
        epochs: int | None = None,
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        for name in ("examples", "configs"):
            shutil.copytree(ROOT / name, path / name)
        script = (ROOT / "examples/slow_training.py").read_text("utf-8")
        if epochs is not None:
            script = re.sub(r"^EPOCHS = \d+$", f"EPOCHS = {epochs}", script, flags=re.MULTILINE)
        (path / "train.py").write_text(script, "utf-8")
        if runs is not None:
            shutil.copytree(runs, path / "runs")
        self._programs: list[str] = []
        tools = path / ".tools"
        tools.mkdir()
        for name, module in (("autoprof", "autoprof"), ("torchrun", "torch.distributed.run")):
            (tools / name).write_text(_SHIM.format(python=shlex.join(python), module=module))
            (tools / name).chmod(0o755)
        (tools / "python").write_text(f'#!/bin/sh\nexec {shlex.join(python)} "$@"\n')
        (tools / "python").chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUTF8": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "80",
            "MPLBACKEND": "agg",
        }

    def run(self, block: Block) -> Iterator[str]:
        """Run a block; yield the output of each command, or of the program."""
        if "file" in block.notes:
            (self.path / block.notes["file"]).write_text(block.text, "utf-8")
        elif block.language == "diff":
            self._change(block)
        elif block.language == "python":
            before = "\n".join(self._programs) if "goes on" in block.notes else PRELUDE
            program = self.path / "program.py"
            program.write_text(f"{before}\nprint(end='\\f', flush=True)\n{block.text}", "utf-8")
            self._programs = [*(self._programs if "goes on" in block.notes else [PRELUDE]), block.text]
            yield self._call(block, f"python {program.name} 2> errors.txt || {{ cat errors.txt; false; }}").rpartition(
                "\f"
            )[2]
        elif block.language == "console":
            for command in block.commands():
                if runs_here(command):
                    for name, run in PLACEHOLDERS.items():
                        command = re.sub(rf"\b{name}\b", run, command)
                    yield self._call(block, command)
                else:
                    yield ""

    def _change(self, block: Block) -> None:
        """Make a change: lines with ``-`` become those with ``+``, where the lines around them are found."""
        script = self.path / "train.py"
        text = script.read_text("utf-8")
        for hunk in re.split(r"^@@.*\n", block.text, flags=re.MULTILINE):
            lines = hunk.splitlines()
            old = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
            new = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
            if lines:
                assert text.count(old) == 1, f"{block}: this is {text.count(old)} times in train.py:\n{old}"
                text = text.replace(old, new)
        script.write_text(text, "utf-8")

    def _call(self, block: Block, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.path, env=self._environment, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False, encoding="utf-8",
        )  # fmt: skip
        wanted = block.notes.get("exit status", "0")
        is_wanted = str(done.returncode) == wanted or (wanted == "any" and done.returncode < 2)
        assert is_wanted, f"{block}: status {done.returncode} of {command}\n{done.stdout}"
        return done.stdout


def runs_here(command: str) -> bool:
    """Tell whether a command is run: autoprof's own, and a program of ``examples`` or of the page's folder."""
    words = shlex.split(command, comments=True)
    words = words[next((at for at, word in enumerate(words) if "=" not in word), 0) :]
    if words[0] == "python":
        return words[1] == "train.py" or words[1].startswith("examples/")
    return words[0] in ("autoprof", "head", "grep", "cat", "ls") or words[:4] == ["python", "-m", "autoprof"]


def part_of(output: str, notes: dict[str, str]) -> str:
    """Return the part of an output that a page shows."""
    lines = [line.rstrip() for line in output.splitlines()]
    start = next((at for at, line in enumerate(lines) if "from" not in notes or re.search(notes["from"], line)), None)
    assert start is not None or not lines, f"no line matches {notes['from']}:\n{output}"
    start = start or 0
    ends = (at for at in range(start + 1, len(lines)) if "to" in notes and re.search(notes["to"], lines[at]))
    end = next(ends, len(lines))
    return "".join(f"{line}\n" for line in lines[start:end]).strip("\n") + "\n" if lines else ""


def sample_runs(folder: Path, python: Sequence[str] = (sys.executable,)) -> Path:
    """Make the six short runs that pages with ``<!-- runs -->`` find."""
    program = f"""{PRELUDE}
import pathlib, time, autoprof
class Wait(torch.nn.Module):
    def forward(self, batch):
        time.sleep(0.004)  # so that a busy machine does not hide the difference
        return batch
model.append(Wait())
for name, again in [("base", 1), ("change", 2)] * 3:
    number = 1 + len(list(pathlib.Path("runs").glob(f"{{name}}-*")))
    config = {{"output": "made", "sinks": {{"jsonl": {{"flush_s": 0}}, "log": {{}}}}, "sample": {{"budget": None}}}}
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        for batch, target in list(loader)[:20] * 2:
            loss = sum(criterion(model(batch), target) for _ in range(again))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
    pathlib.Path(session.folder).rename(pathlib.Path("runs") / f"{{name}}-{{number}}")
"""
    (folder / "runs").mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run([*python, "-c", program], cwd=folder, env=environment, check=True, timeout=LIMIT_S)
    return folder / "runs"


def with_outputs(page: Path, folder: Folder) -> str:
    """Run a page; return its text with the real outputs."""
    text, shift = page.read_text("utf-8"), 0
    printed = ""
    for block in blocks_of(page):
        new = block.text
        if "output" in block.notes:
            new = part_of(printed, block.notes)
        elif "not run" in block.notes or "tested by" in block.notes:
            continue
        else:
            outputs = list(folder.run(block))
            printed = outputs[-1] if outputs else printed
            if block.has_prompt:
                heads = re.findall(r"^\$ (?:.*\\\n)*.*\n", block.text, re.MULTILINE)
                shown = [part_of(output, block.notes) if runs_here(head[2:].replace("\\\n", " ")) else old
                         for head, output, old in zip(heads, outputs, block.outputs(), strict=True)]  # fmt: skip
                new = "".join(f"{head}{output}" for head, output in zip(heads, shown, strict=True))
        text = text[: block.start + shift] + new + text[block.end + shift :]
        shift += len(new) - len(block.text)
    return text


def main() -> None:
    """Run the pages of the command line and write their outputs."""
    for name in sys.argv[1:]:
        page = Path(name).resolve()
        with TemporaryDirectory() as temporary:
            runs = sample_runs(Path(temporary, "sample")) if needs_runs(page) else None
            page.write_text(with_outputs(page, Folder(Path(temporary, "page"), runs)), "utf-8")
        print(page.relative_to(ROOT), flush=True)


if __name__ == "__main__":
    main()
