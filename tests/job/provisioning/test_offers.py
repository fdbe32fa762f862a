"""Offers of a price list, spread jobs, and what the replay and a closed form make of both."""

from __future__ import annotations

import pytest

from foretrace.analysis.prediction import Prediction, predict
from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.errors import ForetraceError, RefusedError
from foretrace.job.answer import exactly
from foretrace.job.prices import Prices, RentalMachine, RentalServer
from foretrace.job.provisioning.offers import Demand, forecast_offers, list_offers
from foretrace.job.scaled_out import Spread, predict_spread, step_of
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs.sharded import host_job

WANTED = Demand(exactly(1_000, "steps"), deadline_s=60.0)
SMALL = RentalMachine("small", 0.5, (1, 2), network="1Gbps")
SERVER = RentalServer("ps", 0.25, (1, 2))
FEW = Prices((SMALL,), (SERVER,))


def test_every_count_is_offered_with_every_server_and_mode() -> None:
    """Two counts, each reducing its gradients or over one or two servers; both are paid."""
    found = [(str(each.fleet), each.fleet.price_per_hour) for each in list_offers(FEW, WANTED)]

    assert found == [
        ("1 x small, ddp", 0.5),
        ("1 x small + 1 x ps, bsp", 0.75),
        ("1 x small + 2 x ps, bsp", 1.0),
        ("2 x small, ddp", 1.0),
        ("2 x small + 1 x ps, bsp", 1.25),
        ("2 x small + 2 x ps, bsp", 1.5),
    ]


def test_modes_may_be_left_out() -> None:
    """Only servers, at one's own pace."""
    found = list_offers(FEW, WANTED._replace(modes=("asp",)))

    assert {each.spread.mode for each in found} == {"asp"}


def test_a_cluster_brings_its_devices() -> None:
    """Two machines of eight; fewer where the list says so. No servers among them."""
    eight = RentalMachine("dgx", 30.0, (2,), cluster="dgx-a100")
    two = RentalMachine("part", 30.0, (2,), devices=2, cluster="dgx-a100", network="100Gbps")
    found = list_offers(Prices((eight, two), (SERVER,)), WANTED)

    assert [each.fleet.workers for each in found] == [16, 4]
    assert found[0].spread.where == {"cluster": "dgx-a100", "nodes": 2}
    assert [each.bytes_per_s for each in found] == [200e9, 12.5e9]


def test_what_ifs_of_the_job_come_before_those_of_the_machine() -> None:
    """Both before the workers."""
    fast = RentalMachine("fast", 1.0, (2,), network="1Gbps", what_if=("faster_host(speedup=2)",))
    wanted = WANTED._replace(before=("amp",), given={"gradient_mb": 1.5})
    (found,) = list_offers(Prices((fast,)), wanted)

    assert found.spread.scenario() == (
        "amp",
        "faster_host(speedup=2)",
        "ddp(workers=2, network='1Gbps', gradient_mb=1.5)",
    )


def test_forecasts_follow_the_replay() -> None:
    """Two workers need half the steps; the time is theirs times the predicted step."""
    ddp = forecast_offers(host_job(), FEW, WANTED).predicted[3]
    found = predict(host_job(), parse_scenario(["ddp(workers=2, network='1Gbps')"]))

    assert ddp.time.value == pytest.approx(500 * found.predicted_ns / 1e9)
    assert ddp.cost.value == pytest.approx(ddp.time.value / 3_600)


def test_the_closed_form_stands_beside_it() -> None:
    """500 steps, each as long as computing: 3 MB hide behind the rest of it. One machine: 1,000."""
    known = forecast_offers(host_job(), FEW, WANTED).predicted
    step = step_of(predict_one("ddp(workers=1)")).value
    wire = 2 * 1.5e6 * 8 / 1e9

    assert known[0].closed_form_s == pytest.approx(1_000 * step)
    assert known[3].closed_form_s == pytest.approx(500 * max(step, wire / 2))
    assert known[4].closed_form_s == pytest.approx(500 * max(step, wire * 2))
    assert known[4].closed_form_cost == pytest.approx(500 * wire * 2 * 1.25 / 3_600)


def predict_one(*texts: str) -> Prediction:
    """Return the prediction of a scenario."""
    return predict(host_job(), parse_scenario(texts))


def test_workers_may_share_the_batch() -> None:
    """As many steps as on one worker, each of half the samples."""
    wanted = WANTED._replace(splits_batch=True)
    found = forecast_offers(host_job(), FEW, wanted).predicted[3]
    half = predict_one("batch_size(n=16)", "ddp(workers=2, network='1Gbps')")

    assert found.time.value == pytest.approx(1_000 * half.predicted_ns / 1e9)
    assert found.closed_form_s == pytest.approx(
        1_000 * max(step_of(predict_one("ddp(workers=1)")).value / 2, 12e-3)
    )


def test_an_offer_that_cannot_be_predicted_says_why() -> None:
    """32 samples are not shared by three; devices are no place for a CPU job."""
    three = Prices((RentalMachine("small", 0.5, (3,), network="1Gbps"),))
    dgx = Prices((RentalMachine("dgx", 30.0, (1,), cluster="dgx-a100"),))
    shared = forecast_offers(host_job(), three, WANTED._replace(splits_batch=True))
    elsewhere = forecast_offers(host_job(), dgx, WANTED)

    assert shared.refused == ["3 x small, ddp: 3 workers cannot share a batch of 32 evenly"]
    assert elsewhere.refused[0].startswith("1 x dgx, ddp: cluster 'dgx-a100' joins devices")
    assert not shared.predicted


def test_without_gradients_there_is_no_closed_form() -> None:
    """Neither does the replay know what to send; one worker sends nothing."""
    wanted = WANTED._replace(given={"gradient_mb": -1.0})
    found = forecast_offers(
        host_job(), Prices((RentalMachine("small", 0.5, (1,), network="1Gbps"),)), wanted
    )

    assert found.predicted[0].closed_form_s is None


def test_a_batch_that_is_not_known_is_not_split() -> None:
    """The recording must say its size."""
    with pytest.raises(RefusedError, match="does not say its batch size"):
        Spread("bsp", 2, 1, splits_batch=True).scenario(None)


def test_workers_at_their_own_pace_keep_their_batches() -> None:
    """They never train on one step together."""
    spread = Spread("asp", 2, 1, {"network": "1Gbps"}, splits_batch=True)

    assert len(spread.scenario(32)) == 1


def test_one_worker_of_a_job_of_one_is_the_job_itself() -> None:
    """Nothing is to be done; a recording of several is made one."""
    alone = Spread("ddp", 1, where={"network": "1Gbps"})

    assert alone.scenario(recorded=1) == ()
    assert alone.scenario(recorded=4) == ("ddp(workers=1, network='1Gbps')",)
    assert predict_spread(replay_baseline(host_job()), [alone]) == [predict(host_job(), ())]


def test_equal_spreads_are_predicted_alike() -> None:
    """Each in its place, errors too."""
    fine = Spread("ddp", 2, where={"network": "1Gbps"})
    found = predict_spread(replay_baseline(host_job()), [fine, fine._replace(where={}), fine])

    assert found[0] is found[2]
    assert isinstance(found[1], ForetraceError)
