"""The whole job in one: its steps, its time and its cost, before and after a change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretrace.analysis.evidence.evidence import UNVALIDATED, VALIDATED
from foretrace.analysis.prediction import predict
from foretrace.cli import app as cli
from foretrace.errors import RefusedError
from foretrace.graph.build import build
from foretrace.job.whole import JobDescription, Rent, forecast_whole_job, read_job_description
from foretrace.tracer.readers.load import load, save
from foretrace.transforms.scenario import parse_scenario
from tests.support.recordings.kineto import write_small_trace

STEPS_NS = (1_000_000, 1_020_000) * 10
PLAN = 'steps = 500\n[[rent]]\nname = "gpu"\nprice_per_hour = 3.6\ncount = 2\n'
DOUBLED = ("batch_size(n=16)", "faster_kernels(speedup=2)")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a recording of steps of 1.01 ms on 8 samples each."""
    folder = tmp_path_factory.mktemp("job")
    trace = load(write_small_trace(folder))
    meta = replace(trace.meta, unprofiled_step_ns=STEPS_NS, batch_size=8)
    save(replace(trace, meta=meta), folder / "small.parquet")
    return str(folder / "small.parquet")


def losses(folder: Path) -> Path:
    """Write losses that fall as 2 / (1 + step / 50) and level off at 0.2."""
    steps = np.arange(10, 4_010, 10)
    noise = 0.01 * np.random.default_rng(0).standard_normal(len(steps))
    rows = [f"{s},{2 / (1 + s / 50) + 0.2 + n}" for s, n in zip(steps, noise, strict=True)]
    path = folder / "losses.csv"
    path.write_text("\n".join(["step,loss", *rows]))
    return path


def test_steps_times_their_length_times_the_price(recorded: str) -> None:
    """500 steps of 1.01 ms, and 0.1 cent a second before; after it twice the machines."""
    graph = build(load(recorded))
    change = predict(graph, parse_scenario(DOUBLED))

    found = forecast_whole_job(
        graph, change, JobDescription(steps=500, rent=[Rent("gpu", 3.6, count=2)])
    ).answers

    ratio = change.predicted_ns / change.measured.step_ns
    assert found["step"].value == pytest.approx(0.00101)
    assert found["job"].value == pytest.approx(0.505)
    assert found["cost"].value == pytest.approx(0.505 * 0.001)
    assert found["steps after"].value == 250
    assert found["job after"].value == pytest.approx(250 * 0.00101 * ratio)
    assert found["cost after"].value == pytest.approx(found["job after"].value * 0.002)
    assert found["cost after"].unit == "USD"
    assert (found["steps"].status, found["steps after"].status) == (VALIDATED, UNVALIDATED)


def test_without_a_change_there_is_nothing_after(recorded: str) -> None:
    """And without machines nothing of a cost."""
    graph = build(load(recorded))

    found = forecast_whole_job(graph, predict(graph, ()), JobDescription(steps=500))

    assert set(found.answers) == {"step", "steps", "job"}
    assert found.tables == ()
    assert found.title == "The whole job: 500 steps"


def test_a_job_may_end_at_a_loss(recorded: str, tmp_path: Path) -> None:
    """Its time is as uncertain as its steps and a step together."""
    graph = build(load(recorded))
    plan = JobDescription(losses=str(losses(tmp_path)), target=0.22, next_change=float("inf"))

    found = forecast_whole_job(graph, predict(graph, parse_scenario(DOUBLED)), plan)

    steps, job = found.answers["steps"], found.answers["job"]
    assert found.title.startswith("The whole job: training to a loss of 0.22, ")
    assert steps.low < steps.high
    assert job.high / job.value >= steps.high / steps.value
    assert job.value == pytest.approx(steps.value * 0.00101)


def test_what_is_refused_is_said_and_the_rest_is_answered(recorded: str, tmp_path: Path) -> None:
    """A loss that may never be reached has no steps; a step takes what it takes."""
    graph = build(load(recorded))
    plan = JobDescription(losses=str(losses(tmp_path)), target=0.01, rent=[Rent("gpu", 1.0)])

    found = forecast_whole_job(graph, predict(graph, parse_scenario(DOUBLED)), plan)

    assert set(found.answers) == {"step", "step after"}
    assert found.warnings[0].startswith("not answered: 0.01 ")


def test_samples_of_a_log_go_before_the_recording(recorded: str, tmp_path: Path) -> None:
    """A log begins with the start-up, which is paid once, also after the change."""
    np.save(tmp_path / "steps.npy", [5.0, *np.tile([0.10, 0.12, 0.11, 0.13], 15)])
    graph = build(load(recorded))
    plan = JobDescription(steps=600, samples=str(tmp_path / "steps.npy"))

    found = forecast_whole_job(
        graph, predict(graph, parse_scenario(["faster_kernels(speedup=2)"])), plan
    )

    assert found.answers["job"].value == pytest.approx(5 + 599 * 0.115)
    step = found.answers["step after"].value
    assert found.answers["job after"].value == pytest.approx(5 + 599 * step)


def test_nothing_rests_on_steps_that_drift(recorded: str, tmp_path: Path) -> None:
    """No answer at all, and the reason."""
    np.save(tmp_path / "steps.npy", [*[0.1, 0.11] * 20, *[0.3, 0.31] * 20])
    graph = build(load(recorded))

    found = forecast_whole_job(
        graph, predict(graph, ()), JobDescription(steps=9999, samples=str(tmp_path / "steps.npy"))
    )

    assert found.answers == {}
    assert "not answered: the pace changes" in found.warnings[-1]


def test_a_job_that_ends_within_its_start_up_is_not_changed(
    recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What its start-up takes after a change was not measured."""
    np.save(tmp_path / "steps.npy", [9.0, 5.0, 3.0, *np.tile([0.10, 0.12, 0.11, 0.13], 15)])
    graph, plan = (
        build(load(recorded)),
        JobDescription(steps=3, samples=str(tmp_path / "steps.npy")),
    )

    found = forecast_whole_job(graph, predict(graph, parse_scenario(DOUBLED)), plan)

    assert found.answers == {}
    assert "is over within its start-up of 3" in found.warnings[0]
    given = ("--trace", recorded, "--steps", "3")
    assert cli.run(["job", "runtime", str(plan.samples), *DOUBLED, *given]) == 1
    assert "a job of 3 steps is over" in capsys.readouterr().err


def test_files_lie_beside_the_plan(tmp_path: Path) -> None:
    """Wherever the command is started."""
    path = tmp_path / "job.toml"
    path.write_text('losses = "l.csv"\ntarget = 0.5\nsamples = "s.csv"\n')
    for name in ("l.csv", "s.csv"):
        (tmp_path / name).touch()

    found = read_job_description(path)

    assert (found.losses, found.samples) == (str(tmp_path / "l.csv"), str(tmp_path / "s.csv"))
    assert read_job_description(written(tmp_path, PLAN)).rent == [Rent("gpu", 3.6, count=2)]


def written(folder: Path, text: str) -> Path:
    """Write a plan and return where it is."""
    path = folder / "plan.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "give one of steps and losses"),
        ('steps = 5\nlosses = "a"\ntarget = 1.0', "give one of steps and losses"),
        ('losses = "a"', "losses and target belong together"),
        ("steps = 5\ntarget = 1.0", "losses and target belong together"),
        ("steps = 0", "`int` >= 1"),
        ("steps = 5\nfast = true", "unknown field `fast`"),
        ("steps 5", "plan.toml: "),
        ('losses = "a"\ntarget = nan', "target = nan is no loss"),
        ("steps = 5\nnext_change = nan", "next_change = nan is no step to come"),
        ('steps = 5\nsamples = "none.csv"', "samples: there is no file"),
        ('steps = 5\n[[rent]]\nname = "x"\nprice_per_hour = 0.0', "x: price_per_hour=0.0 is no"),
    ],
)
def test_bad_plans_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    """It names the file and what is wrong in it."""
    with pytest.raises(RefusedError) as found:
        read_job_description(written(tmp_path, text))

    assert words in str(found.value)
    assert "\n" not in str(found.value)


def test_a_missing_plan_is_one_line() -> None:
    """It names the file."""
    with pytest.raises(RefusedError, match=r"nowhere\.toml: cannot be read"):
        read_job_description(Path("nowhere.toml"))


def test_a_job_of_which_nothing_is_answered_fails(
    recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is the error: exit code 1, and no empty report."""
    (tmp_path / "s.csv").write_text("seconds\n1\n")
    plan = str(written(tmp_path, 'steps = 50\nsamples = "s.csv"'))

    assert cli.run(["job", "whole", recorded, *DOUBLED, "--job", plan]) == 1
    assert "not answered: 1 samples are too few" in capsys.readouterr().err


def test_the_reason_stands_before_notes_about_a_recording(
    recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start-up that was not recorded is none."""
    trace, unsteady = load(recorded), tmp_path / "unsteady.parquet"
    steps_ns = (100_000_000, 110_000_000) * 20 + (300_000_000, 310_000_000) * 20
    save(replace(trace, meta=replace(trace.meta, unprofiled_step_ns=steps_ns)), unsteady)
    plan = str(written(tmp_path, "steps = 9999"))

    assert cli.run(["job", "whole", str(unsteady), "--job", plan]) == 1
    assert capsys.readouterr().err.startswith("foretrace: not answered: the pace changes")


def test_command_and_page_say_the_same(
    recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page holds the JSON of the command, and its text where scripts are off."""
    plan, out = str(written(tmp_path, PLAN)), tmp_path / "page.html"

    assert cli.run(["job", "whole", recorded, *DOUBLED, "--job", plan, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert cli.run(["report", recorded, *DOUBLED, "--job", plan, "--out", str(out)]) == 0
    page = out.read_text("utf-8")
    [_, data] = page.split('id="data">')
    assert json.loads(data.split("</script>")[0])["whole_job"] == found
    assert found["answers"]["cost after"]["interval"][0] <= found["answers"]["cost after"]["value"]
    assert "The whole job: 500 steps" in page.split("</noscript>")[0]
