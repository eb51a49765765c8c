"""Diagnose a run: rules judge its statistics and return findings with their evidence, or abstain with the reason.

Each rule is one module of ``autoprof.diagnose.rules``, or an entry point of that group in another package.
"""

from ._calls import CallStatistics
from ._diagnosis import CallMonitor, Diagnosis
from ._environment import Environment
from ._evidence import Evidence, EvidenceCollector, LongStep
from ._experiment import Change, Experiment, Operation, Quantity, edit_module, less_often
from ._facts import RunFacts
from ._judge import diagnose, find_rules, judge
from ._optimizers import OptimizerInfo, describe_optimizer
from ._python_threads import PythonThread, ThreadMonitor
from ._rare import KEPT_STEPS
from ._rule import MIN_STEPS, Rule
from ._saved import SavedSteps, evidence_of_run, saved_summary
from ._stacks import StackMonitor, StackTable
from ._thresholding import (
    ExceededBound,
    abstain,
    classify,
    describe_longest,
    dominant_name,
    inconclusive,
    threshold_rows,
    threshold_time,
)

__all__ = [
    "KEPT_STEPS",
    "MIN_STEPS",
    "CallMonitor",
    "CallStatistics",
    "Change",
    "Diagnosis",
    "Environment",
    "Evidence",
    "EvidenceCollector",
    "ExceededBound",
    "Experiment",
    "LongStep",
    "Operation",
    "OptimizerInfo",
    "PythonThread",
    "Quantity",
    "Rule",
    "RunFacts",
    "SavedSteps",
    "StackMonitor",
    "StackTable",
    "ThreadMonitor",
    "abstain",
    "classify",
    "describe_longest",
    "describe_optimizer",
    "diagnose",
    "dominant_name",
    "edit_module",
    "evidence_of_run",
    "find_rules",
    "inconclusive",
    "judge",
    "less_often",
    "saved_summary",
    "threshold_rows",
    "threshold_time",
]
