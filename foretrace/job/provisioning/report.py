"""What ``foretrace job plan`` says: the cheapest offer in time, and every other beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.errors import RefusedError
from foretrace.job.provisioning.plan import HOUR, choose, format_duration
from foretrace.job.report import JobReport, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.job.provisioning.offers import Demand, OfferForecasts
    from foretrace.job.provisioning.plan import Choice, OfferForecast
    from foretrace.job.report import Cell

SHARES = "workers share the recorded batch: as many steps as on one worker"
EACH = "every worker trains on a batch of the recorded size, and a sample teaches as much as there"
PAID = "machines are paid by the second, from the first step to the last"
STALE = "workers at their own pace use stale gradients: steps that these cost are not counted"
COSTLY = "stale gradients cost steps, as the root of the workers at their own pace (Cynthia)"


def plan_report(forecasts: OfferForecasts, wanted: Demand, currency: str) -> JobReport:
    """Return the cheapest of *forecasts* that ends in time, with all of it in a table.

    Raises
    ------
    RefusedError
        Nothing ends in time, or nothing could be predicted.
    """
    chosen = _choose(forecasts, wanted.deadline_s)
    best = chosen.safe or chosen.expected
    stale = any(each.fleet.mode == "asp" for each in forecasts.predicted)
    return JobReport(
        title=f"Cheapest that ends within {format_duration(wanted.deadline_s)}: {best.fleet}",
        answers={"step": best.step, "time": best.time, "cost": best.cost},
        tables=(
            _cheapest(forecasts.predicted, chosen, wanted.deadline_s, currency),
            _offers(forecasts.predicted, currency),
        ),
        assumptions=(
            SHARES if wanted.splits_batch else EACH,
            PAID,
            *([COSTLY] if stale and wanted.is_to_loss else []),
            *best.assumptions,
        ),
        warnings=(
            *_risk(chosen),
            *best.warnings,
            *([STALE] if stale and not wanted.is_to_loss else []),
            *forecasts.refused,
        ),
        doubts=best.doubts,
    )


def _choose(forecasts: OfferForecasts, deadline_s: float) -> Choice:
    """Return the cheapest in time; where there is none, say what could not be predicted, too."""
    if not forecasts.predicted:
        raise RefusedError(f"no offer can be predicted: {forecasts.refused[0]}")
    try:
        return choose(forecasts.predicted, deadline_s)
    except RefusedError as error:
        if not forecasts.refused:
            raise
        unknown = (
            f"{len(forecasts.refused)} offers cannot be predicted, such as {forecasts.refused[0]}"
        )
        raise RefusedError(f"{error} ({unknown})") from None


def _risk(chosen: Choice) -> list[str]:
    """Say that even the best offer may be late."""
    if chosen.safe is not None:
        return []
    late = 1 - chosen.expected.in_time
    return [f"no offer ends in time with its whole interval; this one is late in {late:.0%}"]


def _cheapest(
    forecasts: Sequence[OfferForecast], chosen: Choice, deadline_s: float, currency: str
) -> Table:
    """Compare what the replay and the closed form would rent."""
    in_form = [each for each in forecasts if (each.closed_form_s or deadline_s + 1) <= deadline_s]
    form = min(in_form, key=lambda each: each.closed_form_cost or 0.0, default=None)
    rules = {
        "replay, whole interval in time": chosen.safe,
        "replay, expected in time": chosen.expected,
        "closed form, in time": form,
    }
    columns = _columns(currency)
    rows = [
        (rule, *(_cells(pick) if pick else [None] * len(columns))) for rule, pick in rules.items()
    ]
    return Table("Cheapest by", ("rule", *columns), rows)


def _offers(forecasts: Sequence[OfferForecast], currency: str) -> Table:
    by_cost = sorted(forecasts, key=lambda each: (each.cost.value, each.time.value))
    return Table("Offers, the cheapest first", _columns(currency), [_cells(e) for e in by_cost])


def _columns(currency: str) -> tuple[str, ...]:
    return (
        "offer",
        "workers",
        "step, ms",
        "time, h",
        "from",
        "to",
        f"cost, {currency}",
        "in time, %",
        "closed form, h",
        f"closed form, {currency}",
    )


def _cells(forecast: OfferForecast) -> list[Cell]:
    time, form_s = forecast.time, forecast.closed_form_s
    return [
        str(forecast.fleet),
        forecast.fleet.workers,
        1e3 * forecast.step.value,
        *(each / HOUR for each in (time.value, time.low, time.high)),
        forecast.cost.value,
        round(100 * forecast.in_time, 1),
        None if form_s is None else form_s / HOUR,
        forecast.closed_form_cost,
    ]
