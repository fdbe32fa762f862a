"""What a price list offers for a recorded job, and what the replay makes of each offer.

In: a graph, a price list, and how many steps the job takes. Out: a forecast per offer, with what a
closed form says beside it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.errors import ForetraceError
from foretrace.job.provisioning.plan import (
    Fleet,
    OfferForecast,
    Parts,
    closed_form_step,
    forecast_offer,
)
from foretrace.job.scaled_out import Spread, predict_spread, step_of
from foretrace.transforms.cluster.placement import gigabits, outside_gb_per_s
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.distributed.common.gradients import find_gradients, total_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foretrace.analysis.prediction import Prediction
    from foretrace.analysis.scenario_sweep import Outcome
    from foretrace.graph.model import Graph
    from foretrace.job.answer import Answer
    from foretrace.job.prices import Prices, RentalMachine, RentalServer


class Demand(NamedTuple):
    """What is asked of a job: so many steps of one worker's batch, before a deadline.

    ``before`` are what-ifs that come first, ``given`` parameters of `ddp` that the trace does not
    tell; ``splits_batch`` as in `Spread`. ``modes`` are the ways to exchange gradients to consider.
    Where the steps are those to a loss, workers at their own pace need the root of their number
    times as many (Cynthia).
    """

    steps: Answer
    deadline_s: float
    modes: tuple[str, ...] = ("ddp", "bsp")
    before: tuple[str, ...] = ()
    given: Mapping[str, Any] = {}
    splits_batch: bool = False
    is_to_loss: bool = False


class Offer(NamedTuple):
    """Machines to rent, how the job is spread over them, and the bytes per second out of one."""

    fleet: Fleet
    spread: Spread
    bytes_per_s: float


class OfferForecasts(NamedTuple):
    """What could be predicted of the offers, and why the others could not."""

    predicted: list[OfferForecast]
    refused: list[str]


class _Exchange(NamedTuple):
    """How workers exchange gradients, and over which servers."""

    mode: str
    server: RentalServer | None = None
    servers: int = 0


def forecast_offers(graph: Graph, prices: Prices, wanted: Demand) -> OfferForecasts:
    """Return a forecast for every offer of *prices* that can be predicted, in their order."""
    offers = list_offers(prices, wanted)
    alone = [offer.spread._replace(mode="ddp", workers=1) for offer in offers]
    every = predict_spread(replay_baseline(graph), [*(offer.spread for offer in offers), *alone])
    size = _gradient_bytes(graph, wanted)
    made = OfferForecasts([], [])
    for offer, outcome, one in zip(offers, every, every[len(offers) :], strict=False):
        if isinstance(outcome, ForetraceError):
            made.refused.append(f"{offer.fleet}: {outcome}")
        else:
            form_s = _closed_form_s(offer, one, size)
            made.predicted.append(_forecast(offer, outcome, wanted, prices.currency, form_s))
    return made


def list_offers(prices: Prices, wanted: Demand) -> list[Offer]:
    """Return every offer of *prices*; parameter servers need machines with one device each."""
    return [
        _offer(machine, machines, exchange, wanted)
        for machine in prices.machine
        for machines in machine.count
        for exchange in _exchanges(prices.server, wanted.modes, _devices(machine))
    ]


def _exchanges(
    servers: Sequence[RentalServer], modes: Sequence[str], devices: int
) -> list[_Exchange]:
    alone = [_Exchange("ddp")] if "ddp" in modes else []
    return alone + [
        _Exchange(mode, server, count)
        for server in servers
        for count in server.count
        for mode in modes
        if mode != "ddp" and devices == 1
    ]


def _offer(machine: RentalMachine, machines: int, exchange: _Exchange, wanted: Demand) -> Offer:
    mode, server, servers = exchange
    price = machines * machine.price_per_hour + servers * (server.price_per_hour if server else 0.0)
    workers = machines * _devices(machine)
    links: dict[str, Any] = {"network": machine.network, "cluster": machine.cluster}
    if machine.cluster and mode == "ddp":
        links["nodes"] = machines
    where = {name: value for name, value in links.items() if value is not None}
    before = (*wanted.before, *machine.what_if)
    spread = Spread(mode, workers, servers, {**where, **wanted.given}, before, wanted.splits_batch)
    name = server.name if server else ""
    fleet = Fleet(machine.name, machines, workers, mode, price, name, servers)
    return Offer(fleet, spread, _bytes_per_s(machine))


def _devices(machine: RentalMachine) -> int:
    """Return the workers of one machine: on all of its devices, unless fewer are to be used."""
    if machine.cluster is None:
        return 1
    return machine.devices or len(load_cluster(machine.cluster).devices)


def _bytes_per_s(machine: RentalMachine) -> float:
    """Return what a machine sends and gets per second, without headers or losses."""
    if machine.network is not None:
        return gigabits(machine.network) * 1e9 / 8
    return outside_gb_per_s(load_cluster(str(machine.cluster))) * 1e9


def _gradient_bytes(graph: Graph, wanted: Demand) -> int:
    """Return the bytes of all gradients; 0 where neither the trace nor the user tells."""
    try:
        return total_bytes(find_gradients(graph, **wanted.given))
    except ForetraceError:
        return 0


def _closed_form_s(offer: Offer, alone: Outcome, size: int) -> float | None:
    """Return a worker's step by the closed form, from that of the job *alone* on one worker."""
    if isinstance(alone, ForetraceError) or not size or not offer.bytes_per_s:
        return None
    workers = offer.fleet.workers if offer.spread.shares_batch else 1
    parts = Parts(alone.predicted_ns / 1e9 / workers, size, offer.bytes_per_s)
    return closed_form_step(offer.fleet, parts)


def _forecast(
    offer: Offer, prediction: Prediction, wanted: Demand, currency: str, form_s: float | None
) -> OfferForecast:
    is_stale = wanted.is_to_loss and offer.spread.mode == "asp"
    staleness = math.sqrt(offer.spread.workers) if is_stale else 1.0
    made = forecast_offer(
        offer.fleet,
        step_of(prediction),
        wanted.steps.scale(staleness / prediction.samples, "steps"),
        deadline_s=wanted.deadline_s,
        currency=currency,
        closed_form_step_s=form_s,
    )
    return replace(
        made,
        assumptions=prediction.assumptions,
        warnings=prediction.warnings,
        doubts=prediction.doubts,
    )
