"""Numbers for people."""

import pytest

from autoprof.base.units import (
    format_bytes,
    format_ms,
    format_ns,
    format_percent,
    format_rate,
    format_round_percent,
)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (85, "85 ns"),
        (12_300, "12.3 µs"),
        (999_999, "1.0 ms"),
        (280_000_000, "280.0 ms"),
        (1_200_000_000, "1.2 s"),
        (-12_300, "-12.3 µs"),
    ],
)
def test_a_duration_takes_the_unit_that_suits_it(ns: int, text: str) -> None:
    """A duration is phrased with one decimal in the largest unit that it fills."""
    assert format_ns(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0.00 ms"), (900, "<0.01 ms"), (-900, ">-0.01 ms"), (9_990_000, "9.99 ms"), (1_805_280_000, "1805.3 ms")],
)
def test_milliseconds_never_round_something_to_zero(ns: int, text: str) -> None:
    """A column in milliseconds shows what is too small to be seen as less than the least, not as zero."""
    assert format_ms(ns) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), ((1 << 20) - 1, "1.0 MiB"), (1_352_914_698, "1.26 GiB")],
)
def test_bytes_are_powers_of_1024(count: int, text: str) -> None:
    """Bytes are phrased in the binary unit that keeps them below 1024."""
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.0, "0.0 %"), (0.0004, "<0.1 %"), (-0.0004, ">-0.1 %"), (0.4516, "45.2 %"), (1.0, "100.0 %")],
)
def test_a_percentage_never_rounds_something_to_zero(fraction: float, text: str) -> None:
    """What took time has a percentage above zero."""
    assert format_percent(fraction) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(1.949, "1.95 samples/s"), (19.49, "19.5 samples/s"), (1234.5, "1234 samples/s")]
)
def test_a_rate_has_three_digits(rate: float, text: str) -> None:
    """A throughput is phrased with three significant digits."""
    assert format_rate(rate) == text


def test_a_value_below_a_limit_is_less_than_the_limit() -> None:
    """Rounded up, so that it stays true; at the limit a number is a number."""
    assert format_ms(300, limit_ns=500) == "<0.01 ms"
    assert format_ms(0, limit_ns=12_300) == "<0.02 ms"
    assert format_ms(12_300, limit_ns=12_300) == "0.01 ms"
    assert format_ms(5_000_000, limit_ns=20_010_000) == "<20.01 ms"
    assert format_percent(0.002, limit=0.0021) == "<0.3 %"
    assert format_percent(0.0021, limit=0.0021) == "0.2 %"
    assert format_round_percent(0.002, limit=0.011) == "<2"
    assert format_round_percent(0.5, limit=0.011) == "50"
