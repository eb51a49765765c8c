"""``autoprof ranks``: compare all ranks of a saved run, also of a thousand ranks, from their records."""

from __future__ import annotations

import argparse
import csv
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._names import plain_cell
from ..errors import OutputError
from ._help import add_command
from ._output import print_json, terminal
from ._runs import add_run

if TYPE_CHECKING:
    from .._ranks import RankComparison
    from .._ranks.read_folder import FolderRecords


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "ranks",
        help="compare all ranks of a run from their records: which one is slow, and where",
        description=(
            "Compare the ranks of a saved run by their own work, in the steps that all of them have recorded. The "
            "records are read through DuckDB (the extra ranks), from this machine, a shared file system or an object "
            "store. Ranks whose files are missing, damaged or of another run are left out and listed."
        ),
        examples={
            "autoprof ranks": "the latest run in the folder runs",
            "autoprof ranks s3://bucket/runs/a": "a run in an object store, with the credentials that DuckDB finds",
            "autoprof ranks runs/a --csv ranks.csv": "a table with a row for each rank",
        },
    )
    add_run(parser)
    parser.add_argument("--top", type=int, default=10, metavar="N", help="ranks shown; 0 for all (default: 10)")
    parser.add_argument("--json", action="store_true", help="print the comparison, all ranks and the list as JSON")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write a table with a row for each rank")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from .._ranks.rank_table import rank_rows
    from .._reports.ranks_text import ranks_to_dict, render_ranks

    if arguments.top < 0:
        raise OutputError(f"--top: {arguments.top} is not a number of ranks; allowed: 0 (all), 1, 2, …")
    found = _read(_folder(arguments.run_folder))
    comparison = _compare(found)
    rows = rank_rows(found.records)
    if arguments.csv is not None:
        _write_csv(arguments.csv, found, rows)
    if arguments.json:
        print_json(ranks_to_dict(found, comparison, rows))
        return 0
    width, encoding = terminal()
    top = arguments.top or len(rows)
    print("\n".join(render_ranks(found, comparison, rows, width=width, top=top, encoding=encoding)))
    return 0


def _folder(given: str) -> str:
    """Return the folder of a run: an address as it is, here the folder or the latest run in it."""
    from .._storage.runs import find_run

    if "://" in given:
        return given
    has_ranks = any(Path(given).glob("rank*/steps.jsonl"))  # rank 0 and its run.json may be on another machine
    return given if has_ranks else str(find_run(given))


def _read(folder: str) -> FolderRecords:
    from .._ranks.rank_files import RankFiles
    from .._ranks.read_folder import read_folder

    with closing(RankFiles(folder)) as files:
        return read_folder(files)


def _compare(found: FolderRecords) -> RankComparison:
    """Compare the ranks that are read, also where most are left out."""
    from .._ranks import RankComparison, compare_ranks

    ranks = sorted(found.records)
    if len(ranks) < 2:
        return RankComparison(found.world_size, f"readable records of two ranks; there are {len(ranks)}")
    if 2 * len(ranks) >= found.world_size:
        return compare_ranks(found.records, world_size=found.world_size)
    part = compare_ranks([found.records[rank] for rank in ranks])
    absent = {*range(found.world_size)} - {ranks[at] for at in part.compared}
    return replace(
        part,
        world_size=found.world_size,
        rank=ranks[part.rank],
        slow=tuple(replace(one, rank=ranks[one.rank]) for one in part.slow),
        absent=tuple(sorted(absent)),
        map=None if part.map is None else replace(part.map, ranks=tuple(ranks[at] for at in part.map.ranks)),
    )


def _write_csv(path: Path, found: FolderRecords, rows: Any) -> None:
    from .._reports.ranks_text import CSV_COLUMNS, csv_rows

    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(CSV_COLUMNS)
            for row in csv_rows(found, rows):
                writer.writerow([plain_cell(cell) if isinstance(cell, str) else cell for cell in row])
    except OSError as error:
        raise OutputError(
            f"--csv: {path}: cannot be written ({error.strerror}); allowed: a file in a folder that exists"
        ) from error
    print(f"{path}: written", file=sys.stderr)
