"""The accuracy study: what counts, what is listed apart, and what the page says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy import __main__ as accuracy
from benchmarks.accuracy.distributed.study import Distributed
from benchmarks.accuracy.error_table import error_table
from benchmarks.accuracy.intervals.observations import observe_pairs
from benchmarks.accuracy.intervals.scale_fit import fit_scales
from benchmarks.accuracy.page import page
from benchmarks.accuracy.rows import AccuracyStudy, IdentityRow
from benchmarks.accuracy.study import optimizer_ns, read_list, run_study
from foretrace.errors import TraceError
from foretrace.graph.literal import literal
from tests.support.measured.distributed_rows import network_row
from tests.support.measured.pairs import pair

if TYPE_CHECKING:
    from pathlib import Path


PAIRS = (pair("a", 0.02), pair("b", -0.04), pair("c", 0.06))


def test_errors_are_signed_shares_of_the_measured_value() -> None:
    """60 predicted by the paper for a measured 50 is 20 % too much."""
    row = pair("a", 0.02)

    assert row.error == pytest.approx(0.02)
    assert row.null_error == 1.0
    assert row.paper_error == pytest.approx(0.2)


def test_the_table_is_written_as_toml() -> None:
    """What is written is what the package reads."""
    import tomllib

    table = error_table(PAIRS)

    assert tomllib.loads(accuracy.toml(table)) == {k: v for k, v in table.items() if v}


def test_the_page_shows_pairs_means_and_coverage() -> None:
    """Each interval is made without the pair that it is judged on."""
    observations = list(observe_pairs(PAIRS))
    scales = {on: scale.as_table() for on, scale in fit_scales(observations).items()}
    table = {**error_table(PAIRS), "interval": scales}
    text = page(AccuracyStudy(pairs=PAIRS), table, 3, observations)

    assert "| a | amp | 0.00 | 0.00 | 0.00 | +2.0% |  | +100.0% | +20.0% |  |  |" in text
    assert "- GPU, whole steps, not tuned on: median |error| over 3 pairs 4.0% (9 of 10" in text
    assert "| gpu, rule, not tuned on | 3 | 67% | 0.052 | 0.058 |" in text
    assert "- gpu: too few pairs for 90%: the largest error known." in text
    assert "| gpu | amp | rule | 3 | 4.2% | 5.7% |" in text


def test_own_pairs_are_summed_up_by_what_if() -> None:
    """With calibration beside without, those that matter first, held-out models apart."""
    own: dict[str, object] = {"noise": 0.0, "hardware": "cpu"}
    rows = (
        pair("a", 0.2, calibrated_ns=50.5, **own),
        pair("b", 0.4, calibrated_ns=51.0, **own),
        pair("small", 0.03, before_ns=51.0, transforms=("tf32",), **own),
        pair("unseen", -0.3, calibrated_ns=52.0, held_out=True, **own),
    )
    text = page(AccuracyStudy(pairs=rows), error_table(rows), 3)
    big, everything = text.split("### ")[1:3]

    assert big.startswith(
        'Pairs recorded by this project, not tuned on, where "no change" is off > 10%'
    )
    line = "| amp | 2 | 1.5 / 1.9 / 2.0 | 30.0 / 38.0 / 40.0 | 100.0 / 100.0 / 100.0 | 20.0"
    assert line in big
    assert "tf32" not in big
    assert "| tf32 | 1 | 3.0 / 3.0 / 3.0 |" in everything
    held_out = next(li for li in text.splitlines() if "held-out models (looked at in 3" in li)
    assert "over 1 pair 30.0%" in held_out
    assert "of 1 with a calibration 4.0% (9 of 10 within 4.0%), better than their 30.0%" in held_out
    assert "| unseen | amp | 0.00 | 0.00 | 0.00 | +4.0% | -30.0% |" in text
    assert text.count("### Held-out models") == 2


def test_what_cannot_be_judged_is_listed_apart() -> None:
    """Noisy pairs, compiled code, and parts of a step."""
    rows = (
        pair("noisy", 0.5, noise=0.03),
        pair("generated", 0.5, noise=0.0, transforms=("compile",)),
        pair("moved", -0.1, measure="kernels"),
        pair("moved back", -0.3, measure="kernels", tuned_on=True),
        pair("phase", 0.1, measure="optimizer"),
        pair("missed", 0.1, replay_error=0.06),
    )
    text = page(AccuracyStudy(pairs=rows), error_table(rows), 3)
    sections = {part.split("\n", 1)[0]: part for part in text.split("\n## ")}
    own = sections["Pairs recorded by this project"].split("### ")
    parts = {part.split("\n", 1)[0]: part for part in own}

    assert "| noisy |" in parts["Inconclusive"]
    assert "| generated |" in parts["Not predicted"]
    untuned, tuned = sections["Moving to another device"].split("### ")[1:]
    assert "| moved |" in untuned
    assert "Median |error| 10.0%, largest 10.0%; conclusive: 1." in untuned
    assert "| moved back |" in tuned
    public = sections["Public pairs"]
    assert "optimizer |" in next(line for line in public.splitlines() if "| phase |" in line)
    assert "inconclusive |" in next(line for line in public.splitlines() if "| missed |" in line)
    assert "- GPU, optimizer phases, not tuned on: median |error| over 1 pair 10.0%" in text
    assert "- GPU, kernel times on another device, tuned on: median" in text
    assert "whole steps" not in sections["In short"]


def test_the_page_names_exceptions_with_their_cause() -> None:
    """A recording that cannot be met is listed with why."""
    rows = (
        IdentityRow("good", None, 100.0, 100.1, 5),
        IdentityRow("shared", "time slices", 100.0, 93.0, 5),
        IdentityRow("odd", None, 100.0, 110.0, 5),
        IdentityRow("broken", None, problem="no steps"),
    )
    text = page(AccuracyStudy(identities=rows, absent=("gone",)), {}, 3)

    assert "| shared | 5 | 0.00 | 0.00 | -7.00% | time slices |" in text
    assert "| odd | 5 | 0.00 | 0.00 | +10.00% | not explained |" in text
    assert "| broken | | | | | no steps |" in text
    assert "1 of them are within 2%" in text
    assert "1 of the listed recordings were not on the machine" in text


def test_pairs_without_constants_have_no_second_null_model() -> None:
    """The mean of nothing is not 0."""
    text = page(AccuracyStudy(pairs=(pair("a", 0.0, paper_ns=None, noise=0.001),)), {}, 3)

    assert "no change 100.0% (9 of 10 within 100.0%); right sign" in text
    assert "| amp | 1 | 0.0 / 0.0 / 0.0 | 0.0 / 0.0 / 0.0 | 100.0 / 100.0 / 100.0 |  |" in text


def test_a_wrong_direction_is_counted() -> None:
    """Predicting slower for what became faster is a wrong sign."""
    wrong = pair("wrong", 1.2)

    assert "right sign in 3." in page(AccuracyStudy(pairs=(*PAIRS, wrong)), {}, 3)


def test_absent_recordings_are_named(tmp_path: Path) -> None:
    """A list whose recordings are elsewhere gives an empty study that says so."""
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "study.toml").write_text(
        'shared = "nowhere"\narchives = ["*.tar"]\n'
        '[[identity]]\ntrace = "a.json"\n'
        '[[pair]]\nid = "P"\nbefore = "a.json"\nafter = "b.json"\n',
        "utf-8",
    )

    assert run_study(read_list(folder / "study.toml"), folder) == AccuracyStudy(
        absent=("a.json", "b.json")
    )


def test_unreadable_recordings_are_rows_with_a_problem(tmp_path: Path) -> None:
    """The study goes on, and the page says what is wrong."""
    folder = tmp_path / "traces"
    folder.mkdir()
    (tmp_path / "a.json").write_text("{}", "utf-8")
    (folder / "study.toml").write_text(
        'shared = "."\narchives = []\n'
        '[[identity]]\ntrace = "a.json"\n'
        '[[pair]]\nid = "P"\nbefore = "a.json"\nafter = "a.json"\n',
        "utf-8",
    )
    found = run_study(read_list(folder / "study.toml"), folder)

    assert "a.json" in str(found.identities[0].problem)
    assert list(found.problems) == ["P"]


def test_the_optimizers_device_time_is_per_step() -> None:
    """Only device tasks of that phase count."""
    tasks = [
        ("adam", "host", 0, 9_000, "optimizer"),
        ("adam_kernel", "kernel", 1, 6_000, "optimizer"),
        ("gemm", "kernel", 1, 30_000, "forward"),
        ("adam_kernel", "kernel", 1, 4_000, "optimizer"),
    ]
    graph = literal(tasks, columns={"step": [0, 0, 0, 1]})

    assert optimizer_ns(graph) == 5_000


def test_a_graph_without_optimizer_cannot_be_scored_by_it() -> None:
    """The text says what is missing."""
    with pytest.raises(TraceError, match="optimizer"):
        optimizer_ns(literal([("gemm", "kernel", 0, 1, None)]))


def test_the_study_writes_its_page_and_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command rewrites them, and the picture with a mark per pair."""
    assert accuracy.ERRORS.is_file()
    monkeypatch.setattr(accuracy, "TRUTH", tmp_path / "truth.parquet")
    monkeypatch.setattr(accuracy, "ERRORS", tmp_path / "validated.toml")
    monkeypatch.setattr(accuracy, "PAGE", tmp_path / "accuracy.md")
    monkeypatch.setattr(accuracy, "SHORT", tmp_path / "how-far-off.md")
    monkeypatch.setattr(accuracy, "PICTURE", tmp_path / "accuracy.svg")
    monkeypatch.setattr(accuracy, "DISTRIBUTED", tmp_path / "accuracy-distributed.md")
    monkeypatch.setattr(accuracy, "README", tmp_path / "README.md")
    monkeypatch.setattr(accuracy, "run_study", lambda _listed, _folder: AccuracyStudy(pairs=PAIRS))
    cells = (network_row(0.02), network_row(0.04))
    monkeypatch.setattr(accuracy, "run_distributed", lambda _l, _f: Distributed(cells=cells))
    marks = f"before {accuracy.BEGIN} old {accuracy.END} after"
    (tmp_path / "README.md").write_text(marks, "utf-8")
    accuracy.main()

    table = (tmp_path / "validated.toml").read_text("utf-8")
    assert "[gpu.rule.amp]" in table
    assert "[cpu.rule.ddp]\npairs = 2\n" in table
    assert "[interval.gpu]\nbase = 1.0" in table
    short = (tmp_path / "how-far-off.md").read_text("utf-8")
    assert "| mixed precision | GPU | not tuned on | 3 | 4.0% | 5.6% | 67% |  |  |  |  |" in short
    distributed = (tmp_path / "accuracy-distributed.md").read_text("utf-8")
    assert "over 2 cells of DDP: predicted 3.0%" in distributed
    assert (tmp_path / "accuracy.md").read_text("utf-8").startswith("# How far off it is\n")
    left = (tmp_path / "accuracy.svg").read_text("utf-8").split('id="axes_2"')[0]
    assert left.split('id="PathCollection_1"')[1].split("</g>\n   </g>")[0].count("<use ") == 3
    readme = (tmp_path / "README.md").read_text("utf-8")
    assert readme.startswith(f"before {accuracy.BEGIN}\n- GPU, whole steps, not tuned on: median")
    assert readme.endswith(f"\n{accuracy.END} after")
    assert "3 pairs, 2 cells" in capsys.readouterr().out
