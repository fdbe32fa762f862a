"""What to do next: every applicable what-if of a job, ranked by what it gains, and combinations."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from foretrace.analysis.candidates import list_candidates
from foretrace.analysis.explain import sum_path_by_cause
from foretrace.analysis.prediction import Prediction, predict_from
from foretrace.analysis.scenario_sweep import replay_each
from foretrace.analysis.settling import Settling, settle
from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.errors import ForetraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foretrace.analysis.scenario_sweep import Made
    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.analysis.unchanged.measured_step import Measured
    from foretrace.graph.model import Graph
    from foretrace.graph.state import Doubt
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
    ``doubts`` and ``warnings`` hold for every prediction made from this recording; ``settling``
    says what would settle the questions that the intervals leave open.
    """

    measured: Measured
    limits: dict[str, float]
    single: tuple[Advice, ...]
    combined: tuple[Advice, ...]
    inapplicable: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    doubts: tuple[Doubt, ...] = ()
    settling: tuple[Settling, ...] = ()


@dataclass(frozen=True)
class _Trial:
    """A scenario made of candidates, and what it saves."""

    scenario: Scenario
    saves: str


class _Success(NamedTuple):
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
    return advise_from(replay_baseline(graph))


def advise_from(baseline: Baseline) -> Advisory:
    """Try every what-if that suits the job of *baseline*, and the best ones together.

    Raises
    ------
    TransformError
        The recorded step has no work.
    """
    baseline.require_work()
    graph = baseline.graph
    trials = [_Trial((each.what_if(graph),), each.saves) for each in list_candidates()]
    successes, refused = _try_all(baseline, trials)
    best = _pick_to_combine(successes)
    made = [(each.trial.scenario, each.changed) for each in best]
    groups = _group([each.trial for each in best])
    together, _ = _try_all(baseline, [_join(group) for group in groups], made)
    every = [each.advice for each in successes]
    for_speed = [each.prediction for each in _rank(a for a in every if a.saves == "time")]
    return Advisory(
        measured=baseline.measured,
        limits=sum_path_by_cause(baseline.timeline),
        single=_rank(every),
        combined=_rank(each.advice for each in together),
        inapplicable=tuple((_text(trial), str(error)) for trial, error in refused),
        warnings=_warn(graph, every),
        doubts=baseline.doubts,
        settling=settle(graph, for_speed),
    )


def _warn(graph: Graph, every: Sequence[Advice]) -> tuple[str, ...]:
    """Return what is true of every prediction, and what the recording does not say."""
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


def _try_all(
    baseline: Baseline, trials: Sequence[_Trial], made: Sequence[Made] = ()
) -> tuple[list[_Success], list[tuple[_Trial, ForetraceError]]]:
    """Replay every trial; return what came out, and what was refused."""
    successes, refused = [], []
    experiments = replay_each(baseline, (trial.scenario for trial in trials), made)
    for trial, experiment in zip(trials, experiments, strict=True):
        try:
            if isinstance(experiment, ForetraceError):
                raise experiment  # one place for both kinds of refusal
            prediction = predict_from(experiment)
        except ForetraceError as error:
            refused.append((trial, error))
            continue
        advice = Advice(prediction, trial.saves, sum_path_by_cause(experiment.after))
        successes.append(_Success(trial, advice, experiment.changed))
    return successes, refused


def _pick_to_combine(successes: Iterable[_Success]) -> list[_Success]:
    """Return the best trial of each transform, the best few, in the order of application."""
    best: dict[str, _Success] = {}
    for each in successes:
        name = each.trial.scenario[0].name
        least = best[name].advice.gain if name in best else WORTH_COMBINING
        if each.trial.saves == "time" and each.advice.gain > least:
            best[name] = each
    few = sorted(best, key=lambda name: -best[name].advice.gain)[:COMBINED]
    return [best[name] for name in best if name in few]


def _group(best: Sequence[_Trial]) -> list[tuple[_Trial, ...]]:
    """Return all pairs of *best*, and all of them; those that begin alike stand side by side."""
    groups: list[tuple[_Trial, ...]] = [*combinations(best, 2)]
    if len(best) > 2:  # noqa: PLR2004  # two are a pair already
        groups.insert(1, tuple(best))
    return [group for group in groups if not _names(group) >= EITHER_OR]


def _names(group: Iterable[_Trial]) -> set[str]:
    return {what_if.name for trial in group for what_if in trial.scenario}


def _join(group: Sequence[_Trial]) -> _Trial:
    return _Trial(tuple(what_if for trial in group for what_if in trial.scenario), "time")


def _rank(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    return tuple(sorted(advice, key=lambda each: (-each.gain, each.prediction.scenario)))


def _text(trial: _Trial) -> str:
    return " + ".join(str(what_if) for what_if in trial.scenario)
