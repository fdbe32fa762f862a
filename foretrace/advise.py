"""What to do next: every applicable what-if of a job, ranked by what it gains, and combinations."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from foretrace.candidates import candidates
from foretrace.errors import ForetraceError
from foretrace.explain import path_causes
from foretrace.many import replay_each
from foretrace.predict import Measured, Prediction, baseline, predicted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foretrace.candidates import Candidate
    from foretrace.graph.model import Graph
    from foretrace.predict import Baseline
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

    ``gain`` is the samples per second after over before; ``saves`` is "time" or "memory";
    ``limits`` is what a step consists of afterwards: ns on the critical path by cause.
    """

    prediction: Prediction
    gain: float
    saves: str
    limits: dict[str, float]


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
    """A scenario made of candidates: by how much its samples grow, and what it saves."""

    scenario: Scenario
    samples: float
    saves: str


def advise(graph: Graph) -> Advisory:
    """Try every what-if that suits *graph*, and the best ones together.

    Raises
    ------
    TransformError
        The recorded step has no work.
    """
    known = baseline(graph)
    trials = [_trial(graph, (candidate,)) for candidate in candidates()]
    found, refused = _tried(known, trials)
    best = _worth_combining(found)
    pairs, _ = _tried(known, [_together(group) for group in _groups(best)])
    every = [advice for _, advice in found]
    return Advisory(
        measured=known.measured,
        limits=path_causes(known.timeline),
        single=_ranked(every),
        combined=_ranked(advice for _, advice in pairs),
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


def _trial(graph: Graph, group: Sequence[Candidate]) -> _Trial:
    (candidate,) = group
    return _Trial((candidate.what_if(graph),), candidate.samples, candidate.saves)


def _tried(
    known: Baseline, trials: Sequence[_Trial]
) -> tuple[list[tuple[_Trial, Advice]], list[tuple[_Trial, ForetraceError]]]:
    """Replay every trial; return what came out, and what was refused."""
    found, refused = [], []
    replays = replay_each(known, (trial.scenario for trial in trials))
    for trial, after in zip(trials, replays, strict=True):
        try:
            if isinstance(after, ForetraceError):
                raise after  # one place for both kinds of refusal
            prediction = predicted(known, trial.scenario, after)
        except ForetraceError as error:
            refused.append((trial, error))
            continue
        found.append((trial, _advice(prediction, trial, path_causes(after))))
    return found, refused


def _advice(prediction: Prediction, trial: _Trial, limits: dict[str, float]) -> Advice:
    counted = prediction.samples_before and prediction.samples_after
    gain = prediction.speedup if counted else prediction.speedup * trial.samples
    return Advice(prediction, gain, trial.saves, limits)


def _worth_combining(found: Iterable[tuple[_Trial, Advice]]) -> list[_Trial]:
    """Return the best trial of each transform, the best few, in the order of application."""
    best: dict[str, tuple[int, _Trial, float]] = {}
    for place, (trial, advice) in enumerate(found):
        name = trial.scenario[0].name
        worth = trial.saves == "time" and advice.gain >= WORTH_COMBINING
        if worth and advice.gain > best.get(name, (0, trial, 0.0))[2]:
            best[name] = place, trial, advice.gain
    few = sorted(best.values(), key=lambda entry: -entry[2])[:COMBINED]
    return [trial for _, trial, _ in sorted(few, key=lambda entry: entry[0])]


def _groups(best: Sequence[_Trial]) -> list[tuple[_Trial, ...]]:
    """Return all pairs of *best*, those that begin alike side by side, and all of them."""
    every = [tuple(best)] if len(best) > 2 else []  # noqa: PLR2004  # two are a pair already
    return [group for group in [*combinations(best, 2), *every] if not _names(group) >= EITHER_OR]


def _names(group: Iterable[_Trial]) -> set[str]:
    return {what_if.name for trial in group for what_if in trial.scenario}


def _together(group: Sequence[_Trial]) -> _Trial:
    scenario = tuple(what_if for trial in group for what_if in trial.scenario)
    samples = 1.0
    for trial in group:
        samples *= trial.samples
    return _Trial(scenario, samples, "time")


def _ranked(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    return tuple(sorted(advice, key=lambda each: (-each.gain, each.prediction.scenario)))


def _text(trial: _Trial) -> str:
    return " + ".join(str(what_if) for what_if in trial.scenario)
