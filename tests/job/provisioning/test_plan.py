"""Plans: times and costs of what may be rented, and the cheapest that is in time."""

from __future__ import annotations

import pytest

from foretrace.errors import RefusedError
from foretrace.job.answer import Answer, exactly
from foretrace.job.provisioning.plan import (
    Fleet,
    OfferForecast,
    Parts,
    choose,
    closed_form_step,
    forecast_offer,
    format_duration,
    parse_duration,
    probability_below,
)

HOUR = 3_600
STEPS = exactly(3_600, "steps")


def offered(name: str, step: Answer, price: float, deadline_s: float = HOUR) -> OfferForecast:
    """Return the forecast of 3,600 steps on one machine."""
    return forecast_offer(Fleet(name, 1, 1, "ddp", price), step, STEPS, deadline_s=deadline_s)


CHEAP = offered("cheap", Answer(0.95, 0.8, 1.1, "s"), 1.0)
SURE = offered("sure", Answer(0.5, 0.45, 0.55, "s"), 3.0)
LATE = offered("late", Answer(2.0, 1.9, 2.1, "s"), 0.2)


def test_time_and_cost_follow_from_the_step() -> None:
    """3,600 steps of half a second at 3 an hour."""
    assert (SURE.time.value, SURE.time.low, SURE.time.high) == pytest.approx((1800, 1620, 1980))
    assert SURE.cost.value == 1.5
    assert SURE.cost.unit == "USD"


def test_a_closed_form_has_a_cost_too() -> None:
    """At the same price; where there is none, it has no cost."""
    known = forecast_offer(SURE.fleet, SURE.step, STEPS, deadline_s=HOUR, closed_form_step_s=0.4)

    assert known.closed_form_s == pytest.approx(1_440)
    assert known.closed_form_cost == pytest.approx(1.2)
    assert SURE.closed_form_cost is None


def test_the_number_of_steps_may_be_uncertain_too() -> None:
    """3 % and 4 % are 5 % together."""
    found = forecast_offer(
        CHEAP.fleet,
        Answer(1.0, 0.97, 1.03, "s"),
        Answer(100.0, 96.0, 104.0, "steps"),
        deadline_s=HOUR,
    )

    assert (found.time.low, found.time.high) == pytest.approx((95, 105))


def test_the_cheapest_expected_and_the_cheapest_sure_are_told_apart() -> None:
    """One is cheaper, and may be late: its interval ends after the deadline."""
    found = choose([SURE, LATE, CHEAP], HOUR)

    assert found.expected is CHEAP
    assert found.safe is SURE


def test_nothing_may_be_sure() -> None:
    """Then the cheapest that is expected to be in time is all there is."""
    assert choose([CHEAP, LATE], HOUR).safe is None


def test_a_deadline_that_nothing_meets_is_refused() -> None:
    """The text names the fastest, its time and its cost."""
    said = (
        "no plan meets the deadline of 10 min: the fastest, 1 x sure, ddp, takes 30 min and costs "
        "1.50 USD; allow more time or other machines"
    )

    with pytest.raises(RefusedError, match=said):
        choose([CHEAP, SURE, LATE], 600)


def test_being_in_time_is_a_probability() -> None:
    """Even at the value, 95 % at the upper end, less than 5 % below the lower one."""
    time = Answer(10, 8, 14, "s", level=0.9)

    assert probability_below(time, 10) == 0.5
    assert probability_below(time, 14) == pytest.approx(0.95)
    assert probability_below(time, 7) < 0.05


def test_what_is_known_exactly_is_in_time_or_not() -> None:
    """Without an interval there is no doubt."""
    assert [probability_below(exactly(10, "s"), limit) for limit in (9, 10, 11)] == [0, 1, 1]


JOB = Parts(compute_s=1.0, gradient_bytes=100.0, bytes_per_s=200.0)
SERVED = Fleet("m", 4, 4, "bsp", 1.0, "s", 2)


def test_in_step_the_servers_share_what_all_workers_send() -> None:
    """Four workers push and pull 100 bytes over two links of 200 bytes per second."""
    assert closed_form_step(SERVED, JOB) == 2.0
    assert closed_form_step(SERVED, JOB._replace(compute_s=3.0)) == 3.0


def test_more_servers_than_workers_leave_the_links_of_the_workers() -> None:
    """100 bytes out of one machine and into it take half a second each."""
    assert closed_form_step(SERVED._replace(servers=8), JOB._replace(compute_s=0.1)) == 1.0


def test_at_their_own_pace_workers_add_both_until_the_servers_are_busy() -> None:
    """One second of computing and one of transfers; sixteen workers keep two servers busy."""
    own = SERVED._replace(mode="asp")

    assert closed_form_step(own, JOB) == 2.0
    assert closed_form_step(own._replace(workers=16), JOB) == 4.0


def test_machines_in_a_ring_send_less_than_twice_the_gradients() -> None:
    """Of 100 bytes, 2 x 3/4 leave each of four machines; one machine sends nothing."""
    ring = Fleet("m", 4, 4, "ddp", 1.0)

    assert closed_form_step(ring, JOB._replace(compute_s=0.1)) == 0.75
    assert closed_form_step(ring._replace(machines=1), JOB) == 1.0


@pytest.mark.parametrize(
    ("text", "value"), [("90min", 5400), (" 2 h", 7200), ("1.5d", 129_600), ("2 days", 172_800)]
)
def test_times_have_a_unit(text: str, value: float) -> None:
    """Seconds, minutes, hours, days."""
    assert parse_duration(text) == value


@pytest.mark.parametrize("text", ["", "2", "0h", "-1h", "soon", "1h30", "nan h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """The text says how to write one."""
    with pytest.raises(
        RefusedError, match=r"is no time above 0; write one as in 90min, 2h or 1\.5d"
    ):
        parse_duration(text)


def test_durations_take_the_unit_that_suits() -> None:
    """From seconds to days."""
    assert [format_duration(each) for each in (0.25, 59, 60, 3_600, 86_400 * 3)] == [
        "0.25 s",
        "59 s",
        "1 min",
        "1 h",
        "3 d",
    ]
