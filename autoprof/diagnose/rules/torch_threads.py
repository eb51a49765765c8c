"""Rule ``torch-threads``: torch has more threads than there are processors, and they wait for one another.

Finds, above a bound:

- threads of torch for one operator, of all ranks on this machine together, on a CPU; a note, since no figure of the
  run shows their cost: more than there are processors.
"""

from __future__ import annotations

from ...base.summary import Finding
from .. import Evidence, Experiment, Rule


def judge(run: Evidence) -> Finding | None:
    """Compare the threads with the processors that the process may use."""
    environment = run.facts.environment
    threads, cores, ranks = environment.threads or 0, environment.cores or 0, environment.local_ranks or 1
    if environment.device not in ("", "cpu") or not cores or threads * ranks <= cores:
        return None
    each = max(cores // ranks, 1)
    several = f" in each of {ranks} ranks" if ranks > 1 else ""
    return Finding(
        "torch-threads",
        "note",
        f"torch computes with {threads} threads{several} on {cores} processors, so threads wait for one another",
        f"torch.set_num_threads({each}), or OMP_NUM_THREADS={each} in the environment",
        evidence={"threads": threads, "ranks": ranks, "cores": cores},
    )


RULE = Rule("torch-threads", judge, order=49, needs_steps=False, experiment=Experiment("other", "edit"))
