"""Judged observations in, the page for users out: how far off each kind of question is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.accuracy.intervals.interval_coverage import cover
from benchmarks.accuracy.intervals.observations import PLAIN
from benchmarks.accuracy.markdown import spread, table
from foretrace.analysis.error.prediction_interval import LEVEL
from foretrace.analysis.evidence.measured_pair import UNPREDICTED
from foretrace.analysis.evidence.validation_scope import PARTS
from foretrace.transforms.edit.provenance import MEASURED, RULE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.accuracy.intervals.interval_coverage import Judged

QUESTIONS = {
    "activation_checkpoint": "less memory by checkpointing",
    "amp": "mixed precision",
    "batch_size": "another batch size",
    "channels_last": "channels last",
    "cpu_cores": "more cores",
    "dataloader": "loader workers",
    "ddp": "data parallel",
    "device": "another GPU",
    "fsdp": "sharded data parallel",
    "fused_optimizer": "a fused optimizer",
    "gradient_accumulation": "gradient accumulation",
    "parameter_server": "a parameter server",
    "pipeline": "a pipeline",
    "remove_modules": "without some modules",
    "straggler": "a slow worker",
}
SEVERAL = "several at once"
ON = {"cpu": "CPU", "gpu": "GPU"}
COLUMNS = (
    *("question", "on", "evidence", "pairs", "median", f"{LEVEL:.0%} within", "interval holds"),
    *("calibrated: pairs", "median", f"{LEVEL:.0%} within", "interval holds"),
)
HEAD = f"""\
# How far off is it for my kind of question?

`make accuracy` generates this page.
Errors are percent of the measured step (of the part that was compared, where a line says so).
*Interval holds* is the share of intervals that held the truth, each made without any pair of that \
architecture; they mean to hold {LEVEL:.0%}.
*Not tuned on* counts: nothing was chosen while watching these pairs, or earlier ones of their \
models.
*Tuned on* tells how a rule was made, and proves nothing.
*Calibrated* answers used operators that `foretrace calibrate` had timed on the machine.
"""
FOOT = f"""\
A question that is not in the table was never compared with measurements, or once: its answer says \
`unvalidated`, and its interval is at least as wide as those of questions that were.
Pairs of {", ".join(UNPREDICTED)} are not here: generated code cannot be foreseen.
[Accuracy](accuracy.md) shows every pair and how intervals are made, \
[Accuracy of distributed jobs](accuracy-distributed.md) the jobs of several workers.
"""


def how_far_off(judged: Sequence[Judged]) -> str:
    """Return the page: a line for each kind of question, where it was asked, and its evidence."""
    kinds: dict[tuple[str, str, str], list[Judged]] = {}
    for each in judged:
        kinds.setdefault(_kind(each), []).append(each)
    lines = [[*kind, *_figures(kinds[kind])] for kind in sorted(kinds)]
    return "\n".join([HEAD, *table(COLUMNS, lines), "", FOOT])


def _kind(judged: Judged) -> tuple[str, str, str]:
    """Return the question of an observation, where it was asked, and what it proves."""
    each = judged.observation
    names = [QUESTIONS.get(name, name) for name in each.what_ifs]
    question = names[0] if len(names) == 1 else SEVERAL
    part = f", {PARTS[each.measure]}" if each.measure in PARTS else ""
    evidence = "tuned on" if each.tuned else "not tuned on"
    return question, ON[each.on], f"{evidence}{f', {PLAIN}' * (each.source == PLAIN)}{part}"


def _figures(judged: Iterable[Judged]) -> list[str]:
    """Return count, median, quantile and coverage, by rules and calibrated."""
    cells = []
    for way in (RULE, MEASURED):
        of = [each for each in judged if each.observation.way == way]
        if not of:
            cells += ["", "", "", ""]
            continue
        median, most, _ = spread([each.observation.off for each in of]) or (0.0, 0.0, 0.0)
        cells += [str(len(of)), f"{median:.1%}", f"{most:.1%}", f"{cover(of).holds:.0%}"]
    return cells
