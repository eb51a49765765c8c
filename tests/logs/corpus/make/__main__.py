"""``python -m tests.logs.corpus.make``: write the logs and truths that are made by functions."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import writing  # noqa: E402

for path in sorted(HERE.glob("logs_*.py")):
    __import__(path.stem)
for make in writing.MAKERS:
    make().save()
print(f"{len(writing.MAKERS)} logs in {writing.CORPUS}")
