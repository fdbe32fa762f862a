"""The accuracy study: what counts, what is listed apart, and what the page says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace import accuracy
from foretrace.errors import TraceError
from foretrace.study import IdentityRow, PairRow, Study, optimizer_ns, read_list, run_study
from foretrace.transforms.literal import literal

if TYPE_CHECKING:
    from pathlib import Path


def pair(name: str, error: float, **settings: object) -> PairRow:
    """Return an amp pair that took 100 before and 50 after, predicted with *error*."""
    values: dict[str, object] = {
        "change": "amp",
        "hardware": "gpu",
        "transforms": ("amp",),
        "measure": "step",
        "before_ns": 100.0,
        "after_ns": 50.0,
        "paper_ns": 60.0,
        "step_interval": (1.0, 1.0),
    }
    return PairRow(name=name, predicted_ns=50.0 * (1 + error), **{**values, **settings})  # type: ignore[arg-type]


PAIRS = (pair("a", 0.02), pair("b", -0.04), pair("c", 0.06))


def test_errors_are_signed_shares_of_the_measured_value() -> None:
    """60 predicted by the paper for a measured 50 is 20 % too much."""
    row = pair("a", 0.02)

    assert row.error == pytest.approx(0.02)
    assert row.null_error == 1.0
    assert row.paper_error == pytest.approx(0.2)


def test_the_table_keeps_the_90th_percentile() -> None:
    """Of three pairs that is the worst one."""
    assert accuracy.error_table(PAIRS)["gpu"] == {"amp": {"pairs": 3, "median": 0.04, "p90": 0.06}}


def test_one_pair_validates_nothing() -> None:
    """A single pair may be luck."""
    assert accuracy.error_table(PAIRS[:1]) == {"gpu": {}, "cpu": {}}


def test_noisy_pairs_count_nowhere() -> None:
    """A pair whose halves differ by more than 2 % is listed, and left out of the table."""
    noisy = pair("noisy", 0.5, noise=0.03)

    assert not noisy.is_conclusive
    assert accuracy.error_table((*PAIRS, noisy)) == accuracy.error_table(PAIRS)
    assert "inconclusive" in accuracy.page(Study(pairs=(*PAIRS, noisy)), {})


def test_the_optimizer_alone_is_no_step() -> None:
    """A pair scored by the optimizer's device time says nothing about steps."""
    phase = pair("phase", 0.5, measure="optimizer")

    assert accuracy.error_table((*PAIRS, phase)) == accuracy.error_table(PAIRS)


def test_the_table_is_written_as_toml() -> None:
    """What is written is what the package reads."""
    import tomllib

    table = accuracy.error_table(PAIRS)

    assert tomllib.loads(accuracy.toml(table)) == {"gpu": table["gpu"]}


def test_the_page_shows_pairs_means_and_coverage() -> None:
    """Each interval is made without the pair that it is judged on."""
    page = accuracy.page(Study(pairs=PAIRS), accuracy.error_table(PAIRS))

    assert "| a | amp | 0.00 | 0.00 | 0.00 | +2.0% | +100.0% | +20.0% |  |  |" in page
    assert "Mean |error| over 3 public pairs (all): 4.0%; no change 100.0%; paper 20.0%" in page
    assert "It held the measurement in 2 of 3 (67%)." in page
    assert "| gpu | amp | 3 | 4.0% | 6.0% |" in page


def test_the_page_names_exceptions_with_their_cause() -> None:
    """A recording that cannot be met is listed with why."""
    rows = (
        IdentityRow("good", None, 100.0, 100.1, 5),
        IdentityRow("shared", "time slices", 100.0, 93.0, 5),
        IdentityRow("odd", None, 100.0, 110.0, 5),
        IdentityRow("broken", None, problem="no steps"),
    )
    page = accuracy.page(Study(identities=rows, absent=("gone",)), {})

    assert "| shared | 5 | 0.00 | 0.00 | -7.00% | time slices |" in page
    assert "| odd | 5 | 0.00 | 0.00 | +10.00% | not explained |" in page
    assert "| broken | | | | | no steps |" in page
    assert "1 of them are within 2%" in page
    assert "1 of the listed recordings were not on the machine" in page


def test_pairs_without_constants_have_no_second_null_model() -> None:
    """The mean of nothing is not 0."""
    page = accuracy.page(Study(pairs=(pair("a", 0.0, paper_ns=None, noise=0.001),)), {})

    assert "paper no constants" in page


def test_a_wrong_direction_is_counted() -> None:
    """Predicting slower for what became faster is a wrong sign."""
    wrong = pair("wrong", 1.2)

    assert "right sign in 3." in accuracy.page(Study(pairs=(*PAIRS, wrong)), {})


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

    assert run_study(read_list(folder / "study.toml"), folder) == Study(absent=("a.json", "b.json"))


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
    """The command rewrites both files."""
    (tmp_path / "foretrace").mkdir()
    monkeypatch.setattr(accuracy, "ROOT", tmp_path)
    monkeypatch.setattr(accuracy, "PAGE", tmp_path / "accuracy.md")
    monkeypatch.setattr(accuracy, "README", tmp_path / "README.md")
    monkeypatch.setattr(accuracy, "run_study", lambda _listed, _folder: Study(pairs=PAIRS))
    marks = f"before {accuracy.BEGIN} old {accuracy.END} after"
    (tmp_path / "README.md").write_text(marks, "utf-8")
    accuracy.main()

    assert "[gpu.amp]" in (tmp_path / "foretrace" / "validated.toml").read_text("utf-8")
    assert (tmp_path / "accuracy.md").read_text("utf-8").startswith("# How far off it is\n")
    readme = (tmp_path / "README.md").read_text("utf-8")
    assert readme.startswith(f"before {accuracy.BEGIN}\n- Mean |error| over 3 public pairs")
    assert readme.endswith(f"\n{accuracy.END} after")
    assert "3 pairs" in capsys.readouterr().out
