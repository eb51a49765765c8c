"""Many ranks: the own work of each, and the comparison that names the slow one."""

from .causes import Cause
from .comparison import MIN_COMMON_STEPS, RankComparison, SlowRank, compare_ranks, name_ranks
from .excess import MIN_SHARE, median_of_others
from .exchange import Exchange, RankPlace
from .monitor import RankMonitor, compare_saved
from .phrases import phrase_slow
from .record import OwnWork, RankRecord, SpanKey
from .record_reader import FolderRecords, LeftOut, read_folder, read_record

__all__ = [
    "MIN_COMMON_STEPS",
    "MIN_SHARE",
    "Cause",
    "Exchange",
    "FolderRecords",
    "LeftOut",
    "OwnWork",
    "RankComparison",
    "RankMonitor",
    "RankPlace",
    "RankRecord",
    "SlowRank",
    "SpanKey",
    "compare_ranks",
    "compare_saved",
    "median_of_others",
    "name_ranks",
    "phrase_slow",
    "read_folder",
    "read_record",
]
