"""A recorded job on several workers: what-ifs, as a user writes them, and the steps they give.

In: a replayed job and numbers of workers and servers. Out: predictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from foretrace.analysis.error.prediction_interval import LEVEL
from foretrace.analysis.scenario_sweep import predict_each
from foretrace.errors import RefusedError
from foretrace.job.answer import Answer
from foretrace.transforms.scenario import parse_scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foretrace.analysis.prediction import Prediction
    from foretrace.analysis.scenario_sweep import Outcome
    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.graph.model import Graph

MODES = ("ddp", "bsp", "asp")
"""Workers that reduce their gradients among themselves, or over parameter servers: in step, or each
at its own pace."""


class Spread(NamedTuple):
    """So many workers and servers, and what joins them.

    ``where`` are parameters of `ddp`, as a user gives them; ``before`` are what-ifs that come
    first. Where ``splits_batch``, workers that wait for each other share the recorded batch; else
    each trains on one of that size.
    """

    mode: str
    workers: int
    servers: int = 0
    where: Mapping[str, Any] = {}
    before: tuple[str, ...] = ()
    splits_batch: bool = False

    @property
    def shares_batch(self) -> bool:
        """Tell whether a worker trains on a part of the recorded batch."""
        return self.splits_batch and self.mode != "asp" and self.workers > 1

    def scenario(self, batch: int | None = None, recorded: int | None = None) -> tuple[str, ...]:
        """Return the what-ifs that spread a job, a worker of which trains on *batch* samples.

        It was *recorded* on so many workers; by default, as far as is known, on one.

        Raises
        ------
        RefusedError
            The batch is to be split and is not known, or is no multiple of the workers.

        Examples
        --------
        >>> Spread("asp", 4, 1, {"network": "1Gbps"}).scenario()
        ("parameter_server(workers=4, servers=1, mode='asp', network='1Gbps')",)
        >>> Spread("ddp", 4, splits_batch=True).scenario(batch=64)
        ('batch_size(n=16)', 'ddp(workers=4)')
        """
        if self.mode == "ddp" and self.workers == (recorded or 1) == 1:
            return self.before
        served = {} if self.mode == "ddp" else {"servers": self.servers, "mode": self.mode}
        given = {"workers": self.workers, **served, **self.where}
        name = "ddp" if self.mode == "ddp" else "parameter_server"
        written = ", ".join(f"{key}={value!r}" for key, value in given.items())
        return (*self.before, *self._split(batch), f"{name}({written})")

    def _split(self, batch: int | None) -> tuple[str, ...]:
        if not self.shares_batch:
            return ()
        if batch is None:
            raise RefusedError("the recording does not say its batch size, so it cannot be split")
        if batch % self.workers:
            raise RefusedError(f"{self.workers} workers cannot share a batch of {batch} evenly")
        return (f"batch_size(n={batch // self.workers})",)


def predict_spread(baseline: Baseline, spreads: Sequence[Spread]) -> list[Outcome]:
    """Predict the step of a job on each of *spreads*; an error stands in place of a prediction.

    Raises
    ------
    TransformError
        A what-if cannot be read, or the recorded step has no work.
    """
    written = [_write_scenario(spread, baseline.graph) for spread in spreads]
    unique = list(dict.fromkeys(each for each in written if isinstance(each, tuple)))
    outcomes = predict_each(baseline, [parse_scenario(each) for each in unique])
    by_scenario = dict(zip(unique, outcomes, strict=True))
    return [by_scenario[each] if isinstance(each, tuple) else each for each in written]


def _write_scenario(spread: Spread, graph: Graph) -> tuple[str, ...] | RefusedError:
    try:
        return spread.scenario(graph.meta.batch_size, graph.meta.world_size)
    except RefusedError as error:
        return error


def step_of(prediction: Prediction) -> Answer:
    """Return the predicted step of one worker in seconds."""
    low, high = prediction.interval_ns
    value = prediction.predicted_ns
    return Answer(value / 1e9, low / 1e9, high / 1e9, "s", LEVEL, prediction.status)
