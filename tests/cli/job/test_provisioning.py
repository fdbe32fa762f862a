"""foretrace job plan: the cheapest machines that are in time, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.cli import app as cli
from tests.support.recordings.kineto import write_small_trace
from tests.support.recordings.training import BATCH, write_small_training

if TYPE_CHECKING:
    from pathlib import Path

PRICES = """
[[machine]]
name = "one"
price_per_hour = 3.0
count = [1, 2, 4]
network = "10Gbps"

[[server]]
name = "ps"
price_per_hour = 0.3
count = [1]
"""
STEPS = 36_000
"""An hour of steps of 100 ms."""


def arguments(folder: Path, *more: str, prices: str = PRICES, deadline: str = "45min") -> list[str]:
    """Return a call of ``foretrace job plan``."""
    path = folder / "prices.toml"
    path.write_text(prices, "utf-8")
    trace = str(write_small_training(folder))
    listed = ["--prices", str(path), "--deadline", deadline, "--gradient-mb", "10"]
    return ["job", "plan", trace, *listed, *more]


def planned(capsys: pytest.CaptureFixture[str], call: list[str]) -> dict[str, Any]:
    """Return what it says, as JSON."""
    assert cli.run([*call, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def refused(capsys: pytest.CaptureFixture[str], call: list[str]) -> str:
    """Return the sentence with which it refuses."""
    assert cli.run(call) == 1
    return capsys.readouterr().err


def rows(found: dict[str, Any], table: int) -> dict[str, Any]:
    """Return a table by its first column."""
    return {next(iter(row.values())): row for row in found["tables"][table]["rows"]}


def test_the_cheapest_that_is_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One machine takes an hour, which is too long; two are in time and cheaper than four."""
    found = planned(capsys, arguments(tmp_path, "--steps", str(STEPS), deadline="55min"))
    offers = rows(found, 1)

    assert found["title"] == "Cheapest that ends within 55 min: 2 x one, ddp"
    assert offers["1 x one, ddp"]["time, h"] == pytest.approx(1, rel=0.01)
    assert offers["1 x one, ddp"]["in time, %"] == 0
    assert 0.5 < offers["2 x one, ddp"]["time, h"] < 0.75
    assert found["answers"]["cost"]["value"] == offers["2 x one, ddp"]["cost, USD"]
    assert list(offers) == sorted(offers, key=lambda name: offers[name]["cost, USD"])


def test_the_closed_form_stands_beside_the_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It hides all communication, so that two machines cost as much as one."""
    found = planned(capsys, arguments(tmp_path, "--steps", str(STEPS)))
    two = rows(found, 1)["2 x one, ddp"]

    assert two["closed form, h"] == pytest.approx(0.5, rel=0.01)
    assert rows(found, 0)["closed form, in time"]["offer"] == "2 x one, ddp"


def test_samples_may_be_given_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recording knows its batch size."""
    by_steps = planned(capsys, arguments(tmp_path, "--steps", str(STEPS)))
    by_samples = planned(capsys, arguments(tmp_path, "--samples", str(STEPS * BATCH)))

    assert by_samples == by_steps


def losses(folder: Path) -> str:
    """Write losses that fall as 1 / step, and return the path."""
    path = folder / "losses.csv"
    rows = [f"{step},{10_000 / (step + 1_000) + 0.1}" for step in range(0, 20_000, 100)]
    path.write_text("\n".join(["step,loss", *rows]), "utf-8")
    return str(path)


def test_samples_need_a_batch_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a recording that does not say it."""
    call = arguments(tmp_path, "--samples", "1000")
    call[2] = str(write_small_trace(tmp_path))

    assert "the recording does not say its batch size; give --steps" in refused(capsys, call)


def test_what_cannot_be_predicted_is_told_with_a_deadline_that_nothing_meets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It might have met it."""
    prices = PRICES.replace("[1, 2, 4]", "[2, 3]")
    call = ["--steps", "36000", "--split-batch", "--mode", "ddp"]
    said = refused(capsys, arguments(tmp_path, *call, prices=prices, deadline="1s"))

    assert "(1 offers cannot be predicted, such as 3 x one, ddp: 3 workers cannot share" in said


def test_the_job_may_end_at_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many steps as the losses so far foretell; their interval is in that of the time."""
    call = ["--losses", losses(tmp_path), "--target", "0.55", "--mode", "ddp"]
    one = rows(planned(capsys, arguments(tmp_path, *call)), 1)["1 x one, ddp"]
    fixed = rows(planned(capsys, arguments(tmp_path, "--steps", "21222")), 1)["1 x one, ddp"]

    assert one["time, h"] == pytest.approx(fixed["time, h"], rel=0.15)
    assert one["to"] - one["from"] > fixed["to"] - fixed["from"]


def test_a_loss_that_is_not_surely_reached_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by foretrace job convergence."""
    call = arguments(tmp_path, "--losses", losses(tmp_path), "--target", "0.05")

    assert "0.05" in refused(capsys, call)


def test_stale_gradients_cost_steps_to_a_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the root of the workers: four need twice as many."""
    call = ["--mode", "asp", "--losses", losses(tmp_path), "--target", "0.55"]
    found = planned(capsys, arguments(tmp_path, *call))
    plain = planned(capsys, arguments(tmp_path, "--mode", "asp", "--steps", "21222"))
    of_four = [
        rows(each, 1)["4 x one + 1 x ps, asp"]["time, h"]
        / rows(each, 1)["1 x one + 1 x ps, asp"]["time, h"]
        for each in (found, plain)
    ]

    assert of_four[0] == pytest.approx(2 * of_four[1])
    assert any("root of the workers" in each for each in found["assumptions"])


def test_workers_may_share_the_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many steps, each of a half or a quarter of the samples per worker."""
    found = planned(capsys, arguments(tmp_path, "--steps", str(STEPS), "--split-batch"))

    assert rows(found, 1)["4 x one, ddp"]["step, ms"] < 70
    assert "workers share the recorded batch" in found["assumptions"][0]


def test_stale_gradients_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Workers at their own pace are considered only if they are asked for."""
    call = arguments(tmp_path, "--steps", str(STEPS), "--mode", "asp")
    found = planned(capsys, call)

    assert all(name.endswith("asp") for name in rows(found, 1))
    assert any("stale gradients" in each for each in found["warnings"])


def test_what_ifs_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a host ten times as fast one machine is enough."""
    call = arguments(tmp_path, "faster_host(speedup=10)", "--steps", str(STEPS))

    assert planned(capsys, call)["title"].endswith("1 x one, ddp")


def test_an_offer_may_be_in_doubt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no whole interval is in time, the cheapest expected one is named, with its risk."""
    call = arguments(tmp_path, "--steps", str(STEPS), prices=PRICES.replace("1, 2, 4", "2"))
    hours = planned(capsys, call)["answers"]["time"]["value"] / 3_600
    call[call.index("45min")] = f"{hours + 0.001}h"
    found = planned(capsys, call)

    assert "no offer ends in time with its whole interval" in found["warnings"][0]
    assert rows(found, 0)["replay, whole interval in time"]["offer"] is None


def test_a_deadline_that_no_plan_meets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fastest offer and its time."""
    said = refused(capsys, arguments(tmp_path, "--steps", str(STEPS), deadline="1s"))

    assert said.startswith("foretrace: no plan meets the deadline of 1 s: the fastest, 4 x one")


@pytest.mark.parametrize(
    ("more", "changes", "said"),
    [
        (["--steps", "5"], {"prices": PRICES.replace("3.0", "0")}, "is no price"),
        (["--steps", "5"], {"deadline": "soon"}, "'soon' is no time above 0"),
        ([], {}, "give one of --steps, --samples and --losses"),
        (["--steps", "5", "--samples", "5"], {}, "give one of --steps, --samples and --losses"),
        (["--steps", "5", "--target", "1"], {}, "--losses and --target belong together"),
        (["--steps", "5", "--mode", "ring"], {}, "--mode ring is unknown; choose one of ddp, bsp"),
        (
            ["--steps", "5"],
            {"prices": PRICES.replace("10Gbps", "fast")},
            "network='fast' is no rate",
        ),
        (
            ["--steps", "5", "--split-batch"],
            {"prices": PRICES.replace("[1, 2, 4]", "[3]")},
            "no offer can be predicted: 3 x one, ddp: 3 workers cannot share a batch of 32 evenly",
        ),
    ],
)
def test_bad_input_gets_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    changes: dict[str, str],
    said: str,
) -> None:
    """Zero prices, no deadline, no length of the job, unknown modes."""
    assert said in refused(capsys, arguments(tmp_path, *more, **changes))
