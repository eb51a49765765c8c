"""The flight recorder: the last steps of each rank, hangs, and requests of deep captures."""

from .ranks import HANG_REPORT, RankLine, RanksText, describe_ranks, last_states, rank_lines, rank_table, standing_out
from .recorder import FlightRecorder, open_flight_recorder
from .requests import REQUEST, SIGNAL, CaptureRequests, FileTrigger
from .ring import FILE, Flight, State, StepRing, read_flight
from .slow_steps import SlowSteps
from .stack import Activity, read_activity
from .watch import Hang, Look, StepWatch

__all__ = [
    "FILE",
    "HANG_REPORT",
    "REQUEST",
    "SIGNAL",
    "Activity",
    "CaptureRequests",
    "FileTrigger",
    "Flight",
    "FlightRecorder",
    "Hang",
    "Look",
    "RankLine",
    "RanksText",
    "SlowSteps",
    "State",
    "StepRing",
    "StepWatch",
    "describe_ranks",
    "last_states",
    "open_flight_recorder",
    "rank_lines",
    "rank_table",
    "read_activity",
    "read_flight",
    "standing_out",
]
