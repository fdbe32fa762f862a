"""``foretrace job convergence``: a log in, a step out, with what it rests on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.cli import app as cli

if TYPE_CHECKING:
    from pathlib import Path

STEPS = np.arange(1, 501)
LOSSES = 6 * STEPS**-0.3 + 0.02 * np.random.default_rng(1).standard_normal(500)


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Write a log whose learning rate fell after step 100."""
    rows = [
        f"{step},{loss:.5f},{0.1 if step <= 100 else 0.02}"
        for step, loss in zip(STEPS, LOSSES, strict=True)
    ]
    path = tmp_path / "run.csv"
    path.write_text("\n".join(["step,loss,lr", *rows]) + "\n")
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *given: str) -> tuple[int, str, str]:
    """Run the command and return exit code, output and errors."""
    code = cli.run(["job", "convergence", *given])
    return code, *capsys.readouterr()


def test_the_answer_is_a_step_with_an_interval(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """557 steps reach 6 x 557^-0.3 = 0.9; the forms and both rules stand beside."""
    code, out, _ = run(capsys, log, "--target", "0.9", "--json")
    found: dict[str, Any] = json.loads(out)
    answer = found["answers"]["steps to target"]

    assert code == 0
    assert answer["unit"] == "steps"
    assert answer["interval"][0] < 557 < answer["interval"][1]
    assert {row["form"] for row in found["tables"][0]["rows"]} == {
        *("optimus", "power", "exponential", "Optimus' own fit", "last slope")
    }
    assert "losses from step 101 on count" in found["assumptions"][0]


def test_the_text_says_what_is_meant(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Which step it is, of which losses, under which assumption."""
    code, out, _ = run(capsys, log, "--target", "0.86", "--window", "1", "--next-change", "900")

    assert code == 0
    assert "500 losses until step 500; first step has a loss of at most 0.86" in out.replace(
        "that ", ""
    )
    assert "the learning rate stays as it is, data and batch size too until step 900" in out


def test_a_reached_target_needs_no_forms(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The log has the answer."""
    _, out, _ = run(capsys, log, "--target", "1.2")

    assert "nothing had to be foretold" in out
    assert "Forms" not in out


def test_a_refusal_is_one_sentence(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 1."""
    code, out, err = run(capsys, log, "--target", "0.01")

    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "log more steps, or ask for" in err


def test_lines_passed_over_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Logs without learning rates are said to have none."""
    entries = [{"step": int(k), "loss": float(v)} for k, v in zip(STEPS, LOSSES, strict=True)]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": [*entries, {"step": 500, "eval_loss": 1.0}]}))
    _, out, _ = run(capsys, str(path), "--target", "0.9", "--next-change", "never")

    assert "1 lines without a training loss were passed over" in out
    assert "the log has no learning rates" in out


@pytest.mark.parametrize("given", ["soon", "0", "-3"])
def test_a_change_is_a_step_or_never(
    log: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anything else is wrong usage."""
    code, _, err = run(capsys, log, "--target", "0.9", "--next-change", given)

    assert code == 2
    assert "expected a step or 'never'" in err


def test_epochs_are_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever logs once an epoch is told an epoch, and that it is one."""
    path = tmp_path / "run.csv"
    path.write_text("epoch,loss\n" + "".join(f"{at},{6 / at}\n" for at in range(1, 31)))

    code, out, _ = run(capsys, str(path), "--target", "0.5", "--window", "1")

    assert code == 0
    assert "12 epochs" in out
    assert "the log names no steps: its epochs are counted instead" in out
