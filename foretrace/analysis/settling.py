"""Advice in, the cheapest thing that would settle what it leaves open out, with its minutes.

Open is whether a what-if gains at all, where its interval holds "no gain", and which of two is
better, where their intervals overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foretrace.tracer.calibration.file import KNOWN
from foretrace.transforms.measured.calibration import calibration_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from foretrace.analysis.prediction import Prediction
    from foretrace.graph.model import Graph

TRIAL_STEPS = 50
START_MIN = 0.5
"""Minutes until a job runs at its pace: start, data, first steps (an estimate of this project)."""
TIMING_MIN = 0.4
"""Minutes that `foretrace calibrate` times operators by default: 12 s for each form."""
NS_PER_MIN = 60e9
NOT_QUIET = ("drift", "disturbed")
"""Doubts about the machine during the recording: nothing else settles what they leave open."""


class Settling(NamedTuple):
    """What would settle a question about some candidates: what to do, and how long it takes.

    ``minutes`` is for one of them; ``question`` says what is open.
    """

    scenarios: tuple[str, ...]
    question: str
    action: str
    minutes: int

    def __str__(self) -> str:
        """Return it in one sentence.

        >>> str(Settling(("amp",), "does it gain at all?", "try it for 50 steps", 2))
        'amp: does it gain at all? try it for 50 steps (about 2 min)'
        """
        each = " each" if len(self.scenarios) > 1 else ""
        took = f"about {self.minutes} min{each}"
        return f"{', '.join(self.scenarios)}: {self.question} {self.action} ({took})"


def settle(graph: Graph, ranked: Sequence[Prediction]) -> tuple[Settling, ...]:
    """Return what would settle the open questions about *ranked* what-ifs, best first."""
    undecided = [each for each in ranked if is_undecided(each)]
    level = [each for each in ranked[1:] if _overlap(ranked[0], each) and each not in undecided]
    together = [] if not level or is_undecided(ranked[0]) else [ranked[0], *level]
    return (
        *_by_action(graph, undecided, "does it gain at all?"),
        *_by_action(graph, together, "which is best?"),
    )


def is_undecided(prediction: Prediction) -> bool:
    """Tell whether the interval of *prediction* holds both a gain and a loss of speed."""
    least, most = gain_range(prediction)
    return least < 1 < most


def gain_range(prediction: Prediction) -> tuple[float, float]:
    """Return the least and the most times as many samples per second."""
    low, high = prediction.interval_ns
    now_ns = prediction.samples * prediction.measured.step_ns
    return now_ns / high, now_ns / low if low else float("inf")


def _overlap(best: Prediction, other: Prediction) -> bool:
    return gain_range(other)[1] > gain_range(best)[0]


def _by_action(graph: Graph, open_: Iterable[Prediction], question: str) -> Iterator[Settling]:
    """Yield one entry for each thing to do, with all candidates that it settles."""
    found: dict[tuple[str, int], list[str]] = {}
    for each in open_:
        action, minutes = _find_cheapest(graph, each)
        at = action, max(round(minutes), 1)
        found.setdefault(at, []).append(" + ".join(each.scenario))
    for (action, minutes), scenarios in found.items():
        yield Settling(tuple(scenarios), question, action, minutes)


def _find_cheapest(graph: Graph, prediction: Prediction) -> tuple[str, float]:
    """Return the cheapest thing that measures what *prediction* is unsure of, and its minutes."""
    return min(_list_actions(graph, prediction), key=lambda action: action[1])


def _list_actions(graph: Graph, prediction: Prediction) -> Iterator[tuple[str, float]]:
    """Yield what can be done, with its minutes."""
    now, then = (
        TRIAL_STEPS * ns / NS_PER_MIN
        for ns in (prediction.measured.step_ns, prediction.predicted_ns)
    )
    names = [text.partition("(")[0] for text in prediction.scenario]
    if {doubt.code for doubt in prediction.doubts} & set(NOT_QUIET):
        yield "record again on a quiet machine", START_MIN + now
        return
    is_recorded_here = bool(graph.meta.unprofiled_step_ns)
    if is_recorded_here and calibration_of(graph) is None and set(names) <= set(KNOWN):
        yield "time its operators with foretrace calibrate", START_MIN + TIMING_MIN
    if names == ["batch_size"]:
        yield "record it once at that batch size", START_MIN + then
    text = f"run {TRIAL_STEPS} steps with it and {TRIAL_STEPS} without"
    yield text, 2 * START_MIN + now + then
