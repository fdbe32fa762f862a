"""What to do next: every applicable what-if of a job, ranked by what it gains, and combinations."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from foretrace.analysis.candidates import candidates
from foretrace.analysis.explain import path_causes
from foretrace.analysis.prediction import Measured, Prediction, baseline, predicted
from foretrace.analysis.scenario_sweep import replay_each
from foretrace.errors import ForetraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foretrace.analysis.prediction import Baseline
    from foretrace.analysis.scenario_sweep import Made
    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import Scenario

WORTH_COMBINING = 1.01
"""A what-if that gains less is not tried together with others."""
COMBINED = 3
"""How many of the best are tried in pairs, and all together."""
EITHER_OR = frozenset({"compile", "cuda_graphs"})
"""What saves the same thing: a compiler that reduces overhead captures graphs itself."""


@dataclass(frozen=True)
class Advice:
    """One what-if, or several together, and what it brings.

    ``saves`` is "time" or "memory"; ``limits`` is what a step consists of afterwards: ns on the
    critical path by cause.
    """

    prediction: Prediction
    saves: str
    limits: dict[str, float]

    @property
    def gain(self) -> float:
        """Samples per second after over before."""
        return self.prediction.speedup


@dataclass(frozen=True)
class Advisory:
    """All advice for one job, best first; what does not apply stands with its reason.

    ``limits`` is what a step consists of now, ``combinations`` were replayed, not added up.
    ``warnings`` hold for every prediction made from this recording.
    """

    measured: Measured
    limits: dict[str, float]
    single: tuple[Advice, ...]
    combined: tuple[Advice, ...]
    inapplicable: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Trial:
    """A scenario made of candidates, and what it saves."""

    scenario: Scenario
    saves: str


class _Found(NamedTuple):
    """A trial that can be predicted, and the graph that it makes of the job."""

    trial: _Trial
    advice: Advice
    changed: Graph


def advise(graph: Graph) -> Advisory:
    """Try every what-if that suits *graph*, and the best ones together.

    Raises
    ------
    TransformError
        The recorded step has no work.
    """
    known = baseline(graph)
    trials = [_Trial((each.what_if(graph),), each.saves) for each in candidates()]
    found, refused = _tried(known, trials)
    best = _worth_combining(found)
    made = [(each.trial.scenario, each.changed) for each in best]
    groups = _groups([each.trial for each in best])
    together, _ = _tried(known, [_together(group) for group in groups], made)
    every = [each.advice for each in found]
    return Advisory(
        measured=known.measured,
        limits=path_causes(known.timeline),
        single=_ranked(every),
        combined=_ranked(each.advice for each in together),
        inapplicable=tuple((_text(trial), str(error)) for trial, error in refused),
        warnings=_warnings(graph, every),
    )


def _warnings(graph: Graph, every: Sequence[Advice]) -> tuple[str, ...]:
    """Return what holds for every prediction, and what makes them all doubtful."""
    warnings = every[0].prediction.warnings if every else ()
    common = [each for each in warnings if all(each in a.prediction.warnings for a in every)]
    if graph.steps == 1:
        common.append("only one step was recorded: work done once, at the start, may be in it")
    if graph.meta.batch_size is None:
        common.append(
            "the trace does not say its batch size: n=2, recorded=1 means twice as many samples"
        )
    if any("recorded_workers=1" in text for a in every for text in a.prediction.scenario):
        common.append(
            "the trace does not say its loader workers: workers=2, recorded_workers=1 means twice "
            "as many"
        )
    return tuple(common)


def _tried(
    known: Baseline, trials: Sequence[_Trial], made: Sequence[Made] = ()
) -> tuple[list[_Found], list[tuple[_Trial, ForetraceError]]]:
    """Replay every trial; return what came out, and what was refused."""
    found, refused = [], []
    replays = replay_each(known, (trial.scenario for trial in trials), made)
    for trial, after in zip(trials, replays, strict=True):
        try:
            if isinstance(after, ForetraceError):
                raise after  # one place for both kinds of refusal
            prediction = predicted(known, trial.scenario, after)
        except ForetraceError as error:
            refused.append((trial, error))
            continue
        advice = Advice(prediction, trial.saves, path_causes(after))
        found.append(_Found(trial, advice, after.graph))
    return found, refused


def _worth_combining(found: Iterable[_Found]) -> list[_Found]:
    """Return the best trial of each transform, the best few, in the order of application."""
    best: dict[str, _Found] = {}
    for each in found:
        name = each.trial.scenario[0].name
        known = best[name].advice.gain if name in best else WORTH_COMBINING
        if each.trial.saves == "time" and each.advice.gain > known:
            best[name] = each
    few = sorted(best, key=lambda name: -best[name].advice.gain)[:COMBINED]
    return [best[name] for name in best if name in few]


def _groups(best: Sequence[_Trial]) -> list[tuple[_Trial, ...]]:
    """Return all pairs of *best*, and all of them; those that begin alike stand side by side."""
    groups: list[tuple[_Trial, ...]] = [*combinations(best, 2)]
    if len(best) > 2:  # noqa: PLR2004  # two are a pair already
        groups.insert(1, tuple(best))
    return [group for group in groups if not _names(group) >= EITHER_OR]


def _names(group: Iterable[_Trial]) -> set[str]:
    return {what_if.name for trial in group for what_if in trial.scenario}


def _together(group: Sequence[_Trial]) -> _Trial:
    return _Trial(tuple(what_if for trial in group for what_if in trial.scenario), "time")


def _ranked(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    return tuple(sorted(advice, key=lambda each: (-each.gain, each.prediction.scenario)))


def _text(trial: _Trial) -> str:
    return " + ".join(str(what_if) for what_if in trial.scenario)
