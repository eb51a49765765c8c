"""Names become harmless once, and stay what their author wrote wherever they already are."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoprof.base.names import FILE_NAME_LIMIT, clean_name, file_name

ANY_TEXT = st.text(st.characters(categories=None), max_size=300)  # lone surrogates as well
NASTY = st.text(st.sampled_from("a./\\ \x1b\x00\n\x85\u2028\u202e\u200b\ud800時…"), max_size=300)
ANY = st.one_of(ANY_TEXT, NASTY)


@given(ANY)
def test_a_clean_name_holds_no_character_that_acts(name):
    """No control, format, surrogate or line-separating character survives."""
    assert not {unicodedata.category(char) for char in clean_name(name)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(ANY)
def test_cleaning_twice_is_cleaning_once(name):
    """A clean name is clean."""
    assert clean_name(clean_name(name)) == clean_name(name)


@given(ANY)
def test_no_segment_of_a_clean_name_acts_as_a_path(name):
    """No segment is empty, ``.`` or ``..``, and the name never begins at the root."""
    assert not {"", ".", ".."} & set(clean_name(name).split("/"))


@given(ANY)
def test_a_file_name_is_one_ordinary_component(name):
    """A file name is printable, short, has no separator, and is neither hidden nor special."""
    safe = file_name(name)
    assert safe.isprintable()
    assert 1 <= len(safe.encode()) <= FILE_NAME_LIMIT + 1
    assert not safe.startswith(".")
    assert not set(safe) & set('/\\:*?"<>| \0')
    assert file_name(safe) == safe


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("VRT/Stage8", "VRT/Stage8"),
        ("前向传播总耗时/维度转换", "前向传播总耗时/维度转换"),
        ("Größe café", "Größe café"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("two\nlines\tand\rmore", "two\\nlines\\tand\\rmore"),
        ("abc\u202ecba", "abc\\u202ecba"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("lone\ud800", "lone\ufffd"),
        ("../../etc/passwd", "__/__/etc/passwd"),
        ("/root//x/./y/", "root/x/_/y"),
        ("", "?"),
        (" / ", "?"),
        ("...", "..."),
    ],
)
def test_clean_names(name, clean):
    """Only what acts is written out; everything else stays."""
    assert clean_name(name) == clean


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("VRT/Stage 8", "VRT_Stage_8"),
        ("../../x", "_.._x"),
        ("时间", "时间"),
        ("", "_"),
        ("..", "_"),
        (".hidden", "hidden"),
    ],
)
def test_file_names(name, safe):
    """Letters of any script, digits and ``-._`` stay; the rest is an underscore."""
    assert file_name(name) == safe
