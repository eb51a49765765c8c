"""The flight recorder: the last steps of each rank, hangs, and deep captures of chosen or requested steps."""

from .ranks import HANG_REPORT, RankLine, describe_ranks, last_states, rank_lines, standing_out
from .recorder import FlightRecorder
from .ring import FILE, State, read_flight

__all__ = [
    "FILE",
    "HANG_REPORT",
    "FlightRecorder",
    "RankLine",
    "State",
    "describe_ranks",
    "last_states",
    "rank_lines",
    "read_flight",
    "standing_out",
]
