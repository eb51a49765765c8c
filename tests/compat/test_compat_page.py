"""``docs/compat.md``: each row names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/compat.md").read_text(encoding="utf-8")


def test_every_row_names_tests_that_exist() -> None:
    """A file, or a file and a function in it; ``::name`` alone is in the file named before it."""
    missing = []
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and "test" in line.rsplit("|", 2)[-2]]
    for row in rows:
        proofs = re.findall(r"`((?:[\w/]+\.py)?(?:::\w+)?)`", row.rsplit("|", 2)[-2])
        file = ""
        for proof in proofs:
            path, _, function = proof.partition("::")
            file = path or file
            if "/" in file:  # another room keeps its own tests
                continue
            text = (ROOT / "tests" / "compat" / file).read_text(encoding="utf-8")
            if function and f"def {function}(" not in text:
                missing.append(proof)
    assert len(rows) > 60
    assert missing == []


def test_every_row_has_a_proof() -> None:
    """No feature is only claimed."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") == 4]
    assert [row for row in rows if ".py" not in row and not row.endswith("| test |")] == []
