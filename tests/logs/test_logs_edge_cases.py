"""Edge cases of real logs: units, ranks, restarts, encodings, incomplete lines, damaged files."""

import gzip
import json
import math
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from autoprof.errors import AutoprofError, MissingExtra
from autoprof.logs import load_logs
from autoprof.logs.formats import objects

LINES = [f"step {at}, loss: {5 - at / 100:.4f}" for at in range(1, 401)]


def _load(tmp_path: Path, text: str | bytes, name: str = "log") -> pd.DataFrame:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_logs(path)


def _jsonl(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        ("step 1 | loss 2.0 | dt: 1.5s", "step_time_s", 1.5),
        ("step 1 | loss 2.0 | dt: 250ms", "step_time_s", 0.25),
        ("step 1 | loss 2.0 | step_time: 2 min", "step_time_s", 120.0),
        ("step 1 | loss 2.0 | mem: 2048MiB", "memory", 2.0),
        ("step 1 | loss 2.0 | mem: 3.5GB", "memory", 3.5),
        ("step 1 | loss 2.0 | tok/sec: 12,345.6", "tokens_per_s", 12345.6),
        ("step 1 | loss 2.0 | throughput: 12.3k tok/s", "tokens_per_s", 12300.0),
        ("step 1 | loss 2.0 | mfu: 41.5%", "mfu", 41.5),
        ("Epoch [1/3], Step [1/600], Loss: 2.0, lr: 1e-4", "lr", 1e-4),
        ("Training step 1, loss=2.0, grad norm: 1.5", "grad_norm", 1.5),
        ("步数: 1 损失: 2.0 学习率: 0.001", "lr", 0.001),
    ],
)
def test_units_of_a_text_are_read(tmp_path: Path, line: str, column: str, value: float) -> None:
    """The unit behind a number decides, whatever the key."""
    df = _load(tmp_path, f"{line}\n{line.replace('1', '2', 1)}\n")
    assert df[column].iloc[0] == pytest.approx(value)
    assert df["loss"].iloc[0] == 2.0


def test_nan_and_infinity_are_kept(tmp_path: Path) -> None:
    """A loss that is NaN or infinite is not a line to be skipped."""
    df = _load(
        tmp_path,
        '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": NaN}\n{"step": 3, "loss": Infinity}\n{"step": 4, "loss": 1.0}\n',
    )
    assert len(df) == 4
    assert math.isnan(df["loss"][1])
    assert df["loss"][2] == math.inf
    assert df.attrs["files"][0]["skipped"] == 0


def test_steps_logged_again_after_a_restart_count_once(tmp_path: Path) -> None:
    """After a restart from a checkpoint the later record of a step counts, with a note."""
    first = [{"step": at, "loss": 10.0 - at} for at in range(1, 8)]
    second = [{"step": at, "loss": 5.0 - at / 10} for at in range(5, 10)]
    df = _load(tmp_path, _jsonl(*first, *second))
    assert list(df["step"]) == list(range(1, 10))
    assert df["loss"][4] == 4.5
    assert any("logged again later" in note and ": 3 records" in note for note in df.attrs["files"][0]["notes"])


def test_steps_out_of_order_are_sorted(tmp_path: Path) -> None:
    """Records that were written late stand where they belong; none is lost."""
    df = _load(tmp_path, _jsonl(*({"step": at, "loss": at / 2} for at in (1, 2, 4, 3, 5))))
    assert list(df["step"]) == [1, 2, 3, 4, 5]
    assert list(df["loss"]) == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert "records out of order, sorted by step: 1" in df.attrs["files"][0]["notes"]


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-11-20 10:00:00,123 INFO train: ",
        "[rank0]: ",
        " 12%|█▏        | 12/100 [00:01<00:09,  8.3it/s] ",
        "[default0]:INFO:root:",
    ],
)
def test_records_behind_a_prefix_are_found(tmp_path: Path, prefix: str) -> None:
    """A time, a rank or a bar in front of a record does not hide it."""
    df = _load(tmp_path, "".join(prefix + json.dumps({"step": at, "loss": at / 4}) + "\n" for at in range(1, 5)))
    assert list(df["loss"]) == [0.25, 0.5, 0.75, 1.0]


def test_ranks_in_one_file_have_rows_of_their_own(tmp_path: Path) -> None:
    """Interleaved ranks, even two in one line, are rows of their own."""
    lines = [f"[rank{rank}]: step {step} | loss: {rank + step / 10}" for step in range(1, 4) for rank in (1, 0)]
    df = _load(tmp_path, "\n".join(lines) + "\n")
    assert df.groupby("rank")["loss"].apply(list).to_dict() == {0: [0.1, 0.2, 0.3], 1: [1.1, 1.2, 1.3]}
    records = [json.dumps({"step": 1, "loss": 1.0 + rank, "rank": rank}) for rank in range(3)]
    assert sorted(_load(tmp_path, records[0] + "\n" + records[1] + records[2] + "\n", "joined")["loss"]) == [
        1.0,
        2.0,
        3.0,
    ]


def test_source_code_at_the_top_is_no_record(tmp_path: Path) -> None:
    """A program's source above its output, with losses and steps in it, gives no row."""
    source = Path(load_logs.__code__.co_filename)
    config = "learning_rate = 0.0018\nstep = 5\nbatch_size: int = 64\nfor step in range(10): loss = 0\n"
    df = _load(
        tmp_path, source.read_text() + config + "=" * 80 + "\nstep:1/2 train_loss:4.5\nstep:2/2 train_loss:4.0\n"
    )
    assert list(df["loss"]) == [4.5, 4.0]
    assert len(df) == 2


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "gb18030", "latin-1"])
def test_any_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    """A mark at the beginning, UTF-16, and bytes that are not UTF-8."""
    word = "开始训练 第一轮" if encoding != "latin-1" else "Größe"
    df = _load(tmp_path, f"{word}\nstep 1 loss: 2.0\nstep 2 loss: 1.0\n".encode(encoding))
    assert list(df["loss"]) == [2.0, 1.0]


def test_a_loss_is_not_the_validation_loss_beside_it(tmp_path: Path) -> None:
    """``val loss`` before ``loss`` in one line, and records marked as validation, are separate columns."""
    df = _load(tmp_path, "".join(f"step {at}, val loss 9.0, loss 1.0, lr 0.1, time 5ms, mem 2GB\n" for at in range(3)))
    assert set(df["loss"]) == {1.0}
    assert set(df["val_loss"]) == {9.0}
    split = _load(
        tmp_path, _jsonl({"mode": "train", "step": 1, "loss": 1.0}, {"mode": "val", "step": 1, "loss": 9.0}), "split"
    )
    assert split[["loss", "val_loss"]].iloc[0].tolist() == [1.0, 9.0]


def test_a_path_without_a_record_is_an_error(tmp_path: Path) -> None:
    """A missing file, a pattern without a match, prose and bytes are errors that say what is allowed."""
    with pytest.raises(AutoprofError, match="no such file"):
        load_logs(tmp_path / "nothing")
    with pytest.raises(AutoprofError, match="no file matches"):
        load_logs(str(tmp_path / "*.log"))
    for name, content in (
        ("prose", b"Dear reader,\nthis is a letter.\n"),
        ("bytes", bytes(range(256)) * 20),
        ("empty", b""),
    ):
        with pytest.raises(AutoprofError, match="no training record"):
            _load(tmp_path, content, name)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pandas the message has the command that installs it."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"package pandas, .*pip install 'torch-autoprof\[logs\]'"):
        load_logs(Path(__file__).parent / "fixtures" / "seed.jsonl")


@pytest.mark.parametrize(
    ("row", "last", "pattern"),
    [
        ("{0},{0}0", "101,10", None),
        ("step {0}, loss: 1.{0}e-3", "step 101, loss: 1.101", None),
        ("step {0}, loss: 0.5, dt: 12ms", "step 101, loss: 0.5, dt: 12m", None),
        ("loss: 0.5, step: {0}0", "loss: 0.5, step: 101", None),
        ("at {0} is {0}5", "at 101 is 10", r"at (?P<step>\d+) is (?P<loss>\S+)"),
    ],
    ids=["csv", "exponent", "unit", "step", "pattern"],
)
def test_a_line_that_may_be_cut_is_not_read(tmp_path: Path, row: str, last: str, pattern: str | None) -> None:
    """A last line without its end: 10 of 1010, 1.01 of 1.01e-3, minutes of milliseconds. A note says so."""
    path = tmp_path / "log"
    header = "step,loss\n" if row.startswith("{") else ""
    path.write_text(header + "".join(row.format(at) + "\n" for at in range(1, 101)) + last)
    df = load_logs(path, pattern=pattern)
    assert len(df) == df["loss"].notna().sum() == 100
    assert "the file ends within a line, which may be cut and is not read" in df.attrs["files"][0]["notes"]


def _changed(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize("harm", [_changed, lambda data: data[:-200]], ids=["changed", "cut"])
def test_damaged_compressed_data_are_not_read(tmp_path: Path, harm: Any) -> None:
    """Changed bytes decompress to other numbers, and a cut file has no checksum: no value is certain."""
    path = tmp_path / "a.log.z"
    path.write_bytes(harm(gzip.compress("\n".join(LINES).encode())))
    with pytest.raises(AutoprofError, match="the compressed data are cut or damaged"):
        load_logs(path)
    (tmp_path / "b.log").write_text("\n".join(LINES) + "\n")
    assert load_logs(tmp_path).attrs["unread"] == [f"{path} (damaged)"]


def test_a_folder_gives_only_its_logs(tmp_path: Path) -> None:
    """The settings, the README and the source beside a log are no runs."""
    (tmp_path / "train.log").write_text("\n".join(LINES) + "\n")
    (tmp_path / "README.md").write_text("step 1 loss: 2.0\nstep 2 loss: 1.0\n")
    (tmp_path / "args.json").write_text(json.dumps({"lr": 0.1, "epochs": 3, "batch_size": 8}))
    (tmp_path / "setup.log").write_text("Namespace(lr=0.1, epochs=3, batch_size=8, step=1, loss=2)\n")
    df = load_logs(tmp_path)
    assert [Path(entry["path"]).name for entry in df.attrs["files"]] == ["train.log"]


def test_the_objects_around_an_error_are_not_all_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each goes through the whole rest of the line, which took minutes of a long one. An object behind it is read."""
    tried = []

    class Decoder(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> Any:
            tried.append(idx)
            return super().raw_decode(s, idx)

    monkeypatch.setattr(objects, "_DECODER", Decoder(parse_int=float))
    counts = []
    for nested in (200, 400):
        tried.clear()
        lines = ['{"a":' * nested + f'x {{"step": {step}, "loss": 2.0}}' for step in range(1, 4)]
        (tmp_path / "train.jsonl").write_text("\n".join(lines))
        assert load_logs(tmp_path / "train.jsonl")["loss"].tolist() == [2.0] * 3
        counts.append(len(tried))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("text", ["[" * 20_000, '{"a":' * 20_000, '[{"step": 1, "a": ' + "[" * 20_000])
@pytest.mark.parametrize("lines", [1, 3])
def test_a_document_that_is_nested_too_deeply_has_no_record(tmp_path: Path, text: str, lines: int) -> None:
    """No error of Python's own comes out."""
    path = tmp_path / "log.json"
    path.write_text("\n".join([text] * lines))
    with pytest.raises(AutoprofError):
        load_logs(path)
