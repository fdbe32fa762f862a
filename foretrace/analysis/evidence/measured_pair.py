"""A measured pair, before and after a change, beside what was predicted of it.

In: step times of both, and predictions. Out: errors, and whether the pair judges a prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from foretrace.analysis.error.difficulty import NONE, Difficulty
from foretrace.analysis.evidence.validation_scope import Place
from foretrace.tracer.step_stats import NOISE_LIMIT, trimmed_mean
from foretrace.transforms.edit.provenance import MEASURED, RULE

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

RECORDING_LIMIT = 0.05
"""A recording that is off the step measured beside the change by more makes the pair inconclusive
(share): a prediction from it would say that it is doubtful."""
BIG_CHANGE = 0.10
"""Pairs on which "no change" is off by more than this show what a prediction is worth (share)."""
UNPREDICTED = ("compile",)
"""What-ifs whose pairs are listed and count in no aggregate: generated code cannot be foreseen."""


@dataclass(frozen=True)
class MeasuredPair:
    """One measured pair beside its predictions and the null models. Times in ns.

    ``rule_ns`` is predicted without calibration, ``calibrated_ns`` with it, where the pair has one
    that tells something about the change. ``measure`` is what is compared: "step", "optimizer"
    (device time of that phase) or "kernels" (time of all kernels, on another device).
    ``replay_error`` is what the unchanged replay misses, ``noise`` the drift between the halves of
    an interleaved measurement, ``where`` the setting of several workers (`validation_scope`).
    ``place`` is where the pair was measured; of a part of the device time, ``step_ns`` is the
    predicted step that the part belongs to; ``rule_difficulty`` and ``calibrated_difficulty`` are
    the covariates of both predictions. A pair is ``tuned_on`` where a rule or a constant was chosen
    while watching it, or an earlier recording of its model: it validates nothing.
    """

    name: str
    model: str
    change: str
    hardware: str
    transforms: tuple[str, ...]
    measure: str
    before_ns: float
    after_ns: float
    rule_ns: float
    paper_ns: float | None
    step_interval: tuple[float, float] = (1.0, 1.0)
    calibrated_ns: float | None = None
    replay_error: float = 0.0
    noise: float | None = None
    where: str = ""
    place: Place | None = None
    step_ns: float | None = None
    rule_difficulty: Difficulty = NONE
    calibrated_difficulty: Difficulty = NONE
    tuned_on: bool = False
    held_out: bool = False

    @property
    def predicted_ns(self) -> float:
        """The best prediction there is: with calibration, else by rule."""
        return self.rule_ns if self.calibrated_ns is None else self.calibrated_ns

    @property
    def source(self) -> str:
        """Where the costs of the best prediction come from."""
        return RULE if self.calibrated_ns is None else MEASURED

    @property
    def difficulty(self) -> Difficulty:
        """The covariates of the best prediction."""
        return self.rule_difficulty if self.calibrated_ns is None else self.calibrated_difficulty

    @property
    def error(self) -> float:
        """Signed relative error of the best prediction."""
        return self.predicted_ns / self.after_ns - 1

    @property
    def rule_error(self) -> float:
        """Signed relative error without calibration."""
        return self.rule_ns / self.after_ns - 1

    @property
    def calibrated_error(self) -> float | None:
        """Signed relative error with calibration."""
        return None if self.calibrated_ns is None else self.calibrated_ns / self.after_ns - 1

    @property
    def null_error(self) -> float:
        """Signed relative error of "nothing changes"."""
        return self.before_ns / self.after_ns - 1

    @property
    def paper_error(self) -> float | None:
        """Signed relative error of the paper's constants."""
        return None if self.paper_ns is None else self.paper_ns / self.after_ns - 1

    @property
    def is_conclusive(self) -> bool:
        """Whether the pair's own repeats agree well enough to judge a prediction.

        The step before was measured twice: beside the step after, and while it was recorded. One
        rule for all: a public pair has no noise of its own, its recording is held to the same.
        """
        is_quiet = self.noise is None or abs(self.noise) <= NOISE_LIMIT
        return is_quiet and abs(self.replay_error) <= RECORDING_LIMIT

    @property
    def tested_at(self) -> Place:
        """The place that the pair tells of."""
        return self.place or Place(self.hardware, self.hardware, self.measure, workers=self.where)

    @property
    def miss(self) -> float:
        """How far the measurement lies from the prediction, as a share of the predicted step.

        That is what an interval has to span. Of a part of the step whose step is not known, it is
        the share of that part.
        """
        return abs(self.after_ns - self.predicted_ns) / (self.step_ns or self.predicted_ns)

    @property
    def is_recorded_here(self) -> bool:
        """Whether this project recorded the pair; the others are public."""
        return self.noise is not None

    @property
    def is_foreseen(self) -> bool:
        """Whether the pair judges a prediction: its what-if is one that can be foreseen."""
        return not set(self.transforms) & set(UNPREDICTED)

    @property
    def is_of_one_device(self) -> bool:
        """Whether before and after ran on the same hardware; else only kernels are compared."""
        return self.measure != "kernels"

    @property
    def is_big(self) -> bool:
        """Whether "no change" would be far off."""
        return abs(self.null_error) > BIG_CHANGE


def with_measured_step(graph: Graph, step_ns: float) -> Graph:
    """Return *graph* with the step time in ns that was measured beside the change.

    The variation of the steps that the recording brings along is kept.
    """
    samples_ns = graph.meta.unprofiled_step_ns
    factor = step_ns / trimmed_mean(samples_ns) if samples_ns else 1.0
    scaled_ns = tuple(round(ns * factor) for ns in samples_ns) or (round(step_ns),)
    return replace(graph, meta=replace(graph.meta, unprofiled_step_ns=scaled_ns))
