"""Logs of losses in every shape: what is read, and what is said of what cannot be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import RefusedError
from foretrace.job.convergence.loss_log import LossLog, losses_of_steps, read_losses

if TYPE_CHECKING:
    from pathlib import Path

HISTORY = [
    {"step": 10, "loss": 2.5, "learning_rate": 0.1, "epoch": 0.1},
    {"step": 20, "loss": 2.25, "learning_rate": 0.1, "epoch": 0.2},
    {"step": 20, "eval_loss": 2.3},
    {"step": 20, "train_loss": 2.4, "train_runtime": 9.5},
]
PRINTED = """\
starting
step 10: loss 2.5, lr 0.1
  0%|          | 12/500
step 20: loss 2.25, lr 0.1
validation loss 2.3
"""


def read(folder: Path, text: str | bytes) -> LossLog:
    """Write *text* to a file and read it."""
    path = folder / "log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_losses(path)


@pytest.mark.parametrize(
    "text",
    [
        "step,loss,lr\n10,2.5,0.1\n20,2.25,0.1\n",
        "lr;train_loss;step\n0.1;2.5;10\n0.1;2.25;20\n",
        "\ufeff# written by hand\nStep, Loss, LR\n10, 2.5, 0.1\n\n20, 2.25, 0.1\n",
        json.dumps({"log_history": HISTORY}),
        json.dumps(HISTORY),
        "\n".join(json.dumps(entry) for entry in HISTORY),
        "step 10: loss 2.5, lr 0.1\nstep 20: loss 2.25, lr 0.1\n",
        "Epoch [1/2], Step [10/10], Loss: 2.5, lr=.1\nEpoch [2/2], Step [10/10], Loss: 2.25 lr=.1",
    ],
)
def test_the_same_log_in_many_shapes(tmp_path: Path, text: str) -> None:
    """The content decides what a file is."""
    log = read(tmp_path, text)

    assert log.steps.tolist() == [10, 20]
    assert log.losses.tolist() == [2.5, 2.25]
    assert log.rates is not None
    assert log.rates.tolist() == [0.1, 0.1]


@pytest.mark.parametrize(
    "text",
    ["2.5\n2.25\n", "loss\n2.5\n2.25\n", "[2.5, 2.25]", "loss=2.5\nloss=2.25"],
)
def test_losses_without_steps_are_counted(tmp_path: Path, text: str) -> None:
    """The first is that of step 1; there is no learning rate."""
    log = read(tmp_path, text)

    assert log.steps.tolist() == [1, 2]
    assert log.losses.tolist() == [2.5, 2.25]
    assert log.rates is None


def test_arrays_hold_losses_or_steps_and_losses(tmp_path: Path) -> None:
    """One column or two."""
    np.save(tmp_path / "one.npy", [2.5, 2.25])
    np.save(tmp_path / "two.npy", [[10, 2.5], [20, 2.25]])

    assert read_losses(tmp_path / "one.npy").steps.tolist() == [1, 2]
    assert read_losses(tmp_path / "two.npy").steps.tolist() == [10, 20]


def test_two_columns_without_names_are_steps_and_losses(tmp_path: Path) -> None:
    """In this order."""
    assert read(tmp_path, "10,2.5\n20,2.25\n").steps.tolist() == [10, 20]


def test_lines_without_a_training_loss_are_counted(tmp_path: Path) -> None:
    """An evaluation is no step of the training."""
    assert read(tmp_path, json.dumps(HISTORY)).passed_over == 2
    assert read(tmp_path, PRINTED).losses.tolist() == [2.5, 2.25]


def test_rows_without_a_loss_are_the_schedule_ahead(tmp_path: Path) -> None:
    """They have a step and a learning rate."""
    log = read(tmp_path, "step,loss,lr\n10,2.5,0.1\n20,2.25,0.1\n30,,0.1\n40,,0.01\n")

    assert log.ahead == ((30, 0.1), (40, 0.01))
    assert log.passed_over == 0


def test_a_learning_rate_missing_somewhere_is_none_at_all(tmp_path: Path) -> None:
    """Half a schedule says nothing about its changes."""
    assert read(tmp_path, "step,loss,lr\n10,2.5,0.1\n20,2.25,\n").rates is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("# nothing but a remark\n", "there is no loss in it"),
        ("{broken\n", "there is no loss in it"),
        ('[{"step": 1, "loss": true}]', "entry 1: loss is True, expected a number"),
        (" \n", "is empty"),
        ("step,loss\n10,2.5\n20,nan\n", "log:3: the loss is nan: the training broke there"),
        ("step,loss\n10,inf\n", "log:2: the loss is inf"),
        ("step,loss\n10,2.5\n10,2.25\n", "log:3: step 10 comes after step 10; steps must rise"),
        ("step,loss\n10,2.5\nnan,2.25\n", "log:3: the step is nan"),
        ("step,loss,lr\n10,2.5,-1\n", "log:2: the learning rate is -1.0, expected a number from 0"),
        ("step,loss\n10,high\n", "line 2: loss is 'high', expected a number"),
        ("step,accuracy\n10,0.5\n", "line 1: no column is called loss: step, accuracy"),
        ("1,2,3\n", "line 1: 3 columns without names; name them in line 1"),
        ("1,2\n3\n", "line 2: 1 columns without names; name them in line 1"),
        ("step,loss\n", "there is no loss in it"),
        ("hello\nworld\n", "there is no loss in it; give a CSV with the columns step and loss"),
        ('{"log_history": 3}', "log_history is no list"),
        ('["a"]', "entry 1 is neither an object nor a number"),
        ('[{"step": 1, "loss": [2]}]', "entry 1: loss is [2], expected a number"),
        ('[{"step": 1, "loss": NaN}]', "log:1: the loss is nan"),
        ("step 1 loss nan\n", "log:1: the loss is nan"),
        (b"\xff\xfe\x00", "is neither text in UTF-8 nor an array of NumPy"),
        (b"\x93NUMPY\x01\x00", "is no array that can be read"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, text: str | bytes, said: str) -> None:
    """It names the file, and the line where there is one."""
    with pytest.raises(RefusedError) as caught:
        read(tmp_path, text)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "log") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step,loss,loss\n1,2,3\n", "two columns are called 'loss'"),
        ("step,loss\n-1,2\n", "the step is -1, expected a number from 0"),
        ("step,loss\n1e300,2\n", r"the step is 1e\+300"),
        ("step,loss\n1,1e300\n", r"the loss is 1e\+300, which is no loss"),
        ("loss\n" + "1" * 140_000, r"no table \("),
    ],
)
def test_absurd_logs_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """One sentence, and no arithmetic with them."""
    with pytest.raises(RefusedError, match=said):
        read(tmp_path, text)


@pytest.mark.parametrize("array", [np.zeros((2, 3)), np.zeros((1, 2, 2)), np.array(["a"])])
def test_other_arrays_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    """Three columns could mean anything."""
    np.save(tmp_path / "log.npy", array)

    with pytest.raises(RefusedError, match="expected an array of losses"):
        read_losses(tmp_path / "log.npy")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    """So is a folder."""
    with pytest.raises(RefusedError, match=r"absent: cannot be read \(No such file"):
        read_losses(tmp_path / "absent")
    with pytest.raises(RefusedError, match=r"cannot be read \(Is a directory\)"):
        read_losses(tmp_path)


def test_a_huge_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No log of losses is that long."""
    monkeypatch.setenv("FORETRACE_MAX_LOG_BYTES", "3")

    with pytest.raises(RefusedError, match="more than 3 bytes are too many for a log"):
        read(tmp_path, "1\n2\n")


def test_numbers_in_quotes_are_numbers(tmp_path: Path) -> None:
    """Some loggers write JSON so."""
    log = read(tmp_path, '[{"step": "10", "loss": "2.5"}]')

    assert log.steps.tolist() == [10]
    assert log.losses.tolist() == [2.5]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("step,loss\n1,2.5\n", "steps"),
        ("1,2.5\n2,2.25\n", "steps"),
        ("epoch,loss\n1,2.5\n", "epochs"),
        ("loss\n2.5\n", "losses"),
        ("2.5\n2.25\n", "losses"),
        ("Epoch 1/9: loss 2.5\n", "epochs"),
        ("Epoch 1/9 step 3/5: loss 2.5\n", "steps"),
        ("{'loss': 2.5, 'epoch': 0.4}\n", "losses"),
        ('[{"epoch": 1, "loss": 2.5}]', "epochs"),
        ("[2.5, 2.25]", "losses"),
    ],
)
def test_what_a_log_counts_is_known(tmp_path: Path, text: str, counts: str) -> None:
    """Epochs and rows are no steps: a job must not be as long as their number."""
    assert read(tmp_path, text).counts == counts
    if counts != "steps":
        with pytest.raises(RefusedError, match=f"counts {counts} and not steps"):
            losses_of_steps(tmp_path / "log")


@pytest.mark.parametrize(
    "text",
    [
        "Epoch 1: 7%|7 | 10/150 [00:01, 10it/s, loss=2.5]\rEpoch 1: 13%|13 | 20/150 [loss=2.25]",
        "step 0: train loss 4.0, val loss 4.1\niter 10: loss 2.5, time 1ms\niter 20: loss 2.25\n",
        'Step,"run - train/loss"\n10,2.5\n20,2.25\n',
        "Wall time,Step,Value\n1.5,10,2.5\n1.6,20,2.25\n",
        "epoch,step,train_loss,val_loss\n0,10,2.5,\n0,15,,2.4\n0,20,2.25,\n",
        "Train Epoch: 1 [10/15 (66%)]\tLoss: 2.5\nTrain Epoch: 2 [5/15 (33%)]\tLoss: 2.25\n",
    ],
    ids=["progress bar", "evaluations", "wandb", "tensorboard", "lightning", "samples"],
)
def test_what_common_loggers_write(tmp_path: Path, text: str) -> None:
    """Each in its own way says 2.5 at 10 and 2.25 at 20."""
    log = read(tmp_path, text)

    assert log.steps.tolist() == [10, 20]
    assert log.losses.tolist() == [2.5, 2.25]
