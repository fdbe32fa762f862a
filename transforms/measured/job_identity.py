"""A calibration attached to the graph of the job that it was taken of, on its machine.

In: a graph and a calibration. Out: the graph with it or with a note why not; an error, a verdict,
sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.tracer.recording.job_metadata import parameter_bytes
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.measured.operator_matching import (
    agreement,
    changeable,
    entries_of_operators,
    entries_of_tasks,
)

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.graph.model import Graph
    from foretrace.transforms.measured.calibration import Calibration

LEAST_SHARE = 0.7
"""Below this share of the work, a calibration is not of this job: rules are taken instead."""
LEAST_AGREEMENT = 0.9
"""Share of matched operators whose shapes must be the recorded ones; else the same holds."""
UNQUIET = 0.1
"""Timings that vary by more than this share, on average over their time, are not to be trusted."""


def attach(graph: Graph, calibration: Calibration) -> Graph:
    """Return *graph* with *calibration*, in which its what-ifs look for measured costs.

    A calibration of another processor, with another number of threads, or of a machine that was
    not quiet, is noted as such; one whose operators are not the recorded ones is left out.

    Raises
    ------
    TransformError
        It was taken of a job with other parameters.
    """
    refuse_another_job(graph, calibration)
    graph = add_note(graph, *doubts(graph, calibration))
    if not is_same_job(graph, calibration.before):
        return add_note(
            graph,
            "the calibration lists other operators than were recorded, so it is of another job or "
            "batch: rules were used",
        )
    return graph.with_state(calibration=calibration)


def refuse_another_job(graph: Graph, calibration: Calibration) -> None:
    """Raise where *calibration* was taken of a job with other parameters than *graph*.

    Raises
    ------
    TransformError
        Says how many bytes of parameters either has.
    """
    meta = graph.meta
    recorded = {
        "optimizer": (meta.optimizer or {}).get("bytes"),
        "model": parameter_bytes(meta.extra.get("parameters")),
    }
    for owner, size in calibration.parameter_bytes.items():
        there = recorded.get(owner)
        if isinstance(size, int) and size and there and size != there:
            raise TransformError(
                f"{calibration.source or 'the calibration'} is of another job: its {owner} has "
                f"{size:,} bytes of parameters, the recorded one {there:,}; calibrate again, or "
                "go without (--calibration none)"
            )


def is_same_job(graph: Graph, before: pd.DataFrame) -> bool:
    """Tell whether the operators *before* are those of *graph*, as far as both list some."""
    work = graph.tasks["work_ns"].to_numpy()[changeable(graph)].sum()
    if not len(before) or not work:
        return True
    of_operator = entries_of_operators(graph, before)
    matched = changeable(graph) & (entries_of_tasks(graph, of_operator) >= 0)
    share = graph.tasks["work_ns"].to_numpy()[matched].sum() / work
    return bool(share >= LEAST_SHARE and agreement(graph, of_operator, before) >= LEAST_AGREEMENT)


def doubts(graph: Graph, calibration: Calibration) -> list[str]:
    """Say what of *calibration* is not as in the recording: job, processor, threads, quiet."""
    machine = graph.meta.machine or {}
    there = {
        "job": graph.meta.extra.get("job"),
        "processor": None if graph.meta.devices else machine.get("cpu"),
        "number of threads": None if graph.meta.devices else machine.get("threads"),
    }
    here = {
        "job": calibration.job,
        "processor": calibration.device,
        "number of threads": calibration.threads,
    }
    sentences = [
        f"the calibration is of another {what}: {here[what]}, recorded on {there[what]}"
        for what in here
        if here[what] and there[what] and here[what] != there[what]
    ]
    if calibration.unrest > UNQUIET:
        sentences.append(
            f"the calibrated operators vary by {calibration.unrest:.0%} from run to run: "
            "calibrate again on a quiet machine before trusting a prediction"
        )
    return sentences
