"""Times of steps out of tables, arrays, JSON and what trainings print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import RefusedError
from foretrace.replay.job_samples import read_samples

if TYPE_CHECKING:
    from pathlib import Path

TQDM = "0/100 [00:00<?, ?it/s]\r 1%| | 1/100 [00:01<02:00, 1.25s/it]\r2/100 [00:02, 4.00it/s]"
STAMPED = """2026-01-05 10:00:00,000 INFO step 0 loss 3.1
2026-01-05 10:00:05,500 INFO step 10 loss 2.9
2026-01-05 10:00:06,000 INFO evaluating
2026-01-05 10:00:10.500 INFO step 20 loss 2.7
2026-01-05 10:00:15.500 INFO step 25 loss 2.7
2026-01-05 10:00:20.500 INFO step 35 loss 2.7
"""


def written(folder: Path, text: str) -> Path:
    """Write *text* to a file and return it."""
    path = folder / "steps.txt"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.5\n0.25\n", [0.5, 0.25]),
        ("seconds\n0.5\n\n0.25\n", [0.5, 0.25]),
        ("step,step_time_ms\n1,500\n2,250\n", [0.5, 0.25]),
        ("step;iter_time_s\n1;0.5\n2;0.25\n", [0.5, 0.25]),
        ("step\tduration_ns\n1\t500000000\n", [0.5]),
        (TQDM, [1.25, 0.25]),
        ("Epoch [1][10/50] Step time: 500 ms\nEpoch [1][20/50] step_time=0.25\n", [0.5, 0.25]),
        ("iteration 1 | elapsed time per iteration (ms): 500.0\n" * 2, [0.5, 0.5]),
        ("step 1: 2.5 steps/s\nstep 2: 5 steps/sec\n", [0.4, 0.2]),
        ("{'loss': 0.4}\nepoch done, 4 it/s\n", [0.25]),  # no JSON, and only one time
        ('[{"step": 1, "step_time": 0.5}, {"step": 2, "eval_loss": 2.0}]', [0.5]),
        ('{"log_history": [{"loss": 2, "step_time_ms": 500}]}', [0.5]),
    ],
)
def test_times_are_found(tmp_path: Path, text: str, seconds: list[float]) -> None:
    """Whatever wrote them, they come out as seconds."""
    assert read_samples(written(tmp_path, text)).seconds == pytest.approx(seconds)


def test_an_array_holds_a_time_per_step(tmp_path: Path) -> None:
    """Seconds, one after the other."""
    np.save(tmp_path / "a.npy", [0.5, 0.25])

    found = read_samples(tmp_path / "a.npy")

    assert (found.seconds.tolist(), found.stride) == ([0.5, 0.25], 1)


def test_a_column_can_be_chosen(tmp_path: Path) -> None:
    """A log that is a table, too, is then read as one."""
    path = written(tmp_path, "forward,backward_ms\n1,2000\n3,4000\n")

    assert read_samples(path, "backward_ms").seconds.tolist() == [2.0, 4.0]
    assert read_samples(path, "forward").source == "the column forward"


def test_time_stamps_give_the_mean_of_the_steps_between(tmp_path: Path) -> None:
    """Ten steps in 5.5, 5 and 5 s; the five steps in between are left out, and that is said."""
    found = read_samples(written(tmp_path, STAMPED))

    assert found.seconds == pytest.approx([0.55, 0.5, 0.5])
    assert found.stride == 10
    assert found.notes == ("1 differences of time stamps are not of 10 steps and were left out",)


def test_time_stamps_of_every_step_leave_nothing_out(tmp_path: Path) -> None:
    """Then there is nothing to say."""
    text = "2026-01-05T10:00:00 iter 1\n2026-01-05T10:00:02 iter 2\n"

    found = read_samples(written(tmp_path, text))

    assert (found.seconds.tolist(), found.stride, found.notes) == ([2.0], 1, ())


def test_lines_of_a_log_may_stand_for_several_steps(tmp_path: Path) -> None:
    """A rate printed every twenty steps is a mean of twenty; an epoch begins again at 0."""
    text = "".join(f"step {at} 2.0 it/s\n" for at in (20, 40, 60, 0, 20))

    found = read_samples(written(tmp_path, text))

    assert (found.stride, len(found.seconds)) == (20, 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty; give the seconds that each step took"),
        (" \n", "empty"),
        ("seconds\n0.5\nnan\n", "line 3: 'nan' is no time of a step"),
        ("seconds\n0.5\n-1\n", "line 3: '-1' is no time of a step"),
        ("seconds\n0.5\nfast\n", "line 3: 'fast' is no time of a step"),
        ("step,seconds\n1,0.5\n2\n", "line 3: 1 values for 2 columns"),
        ("0.1,0.2\n0.3,0.4\n", "2 columns without names; name them in line 1"),
        ("a,b\n1,2\n", "Say it with --column; there are a, b"),
        ("seconds,step_time\n1,2\n", "Say it with --column; there are seconds, step_time"),
        ("hello\n", "no line says how long a step took"),
        ("loading\nloss 0.3\nloss 0.2, lr 1\n", "no line says how long"),
        ("step 1 0 it/s\nstep 2 4 it/s\n", "line 1: inf is no time of a step"),
        ('{"log_history": []}', "there are none"),
        ('{"log_history": [{"loss": 1, "epoch": 2}]}', "there are loss, epoch"),
        ('[{"step_time": true}]', "entry 1: True is no time of a step"),
        ('{"log_history": 3}', "no line says how long a step took, or when it was done"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    """It names the file, the place, and what to do."""
    path = written(tmp_path, text)

    with pytest.raises(RefusedError) as found:
        read_samples(path)

    assert str(found.value).startswith(str(path))
    assert words in str(found.value)
    assert "\n" not in str(found.value)


def test_an_unknown_column_is_named(tmp_path: Path) -> None:
    """With those that there are."""
    path = written(tmp_path, json.dumps([{"step_time": 1.0}]))

    with pytest.raises(RefusedError, match="no column 'x'; there are step_time"):
        read_samples(path, "x")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing ones, folders, bytes, broken arrays, and arrays of something else."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00")
    np.save(tmp_path / "table.npy", np.ones((2, 2)))
    np.save(tmp_path / "words.npy", np.array(["a"]))
    words = {
        "missing": "cannot be read",
        ".": "cannot be read",
        "bytes": "neither text nor an array of NumPy",
        "broken.npy": "an array that cannot be read",
        "table.npy": r"float64 of shape \(2, 2\); give one number per step",
        "words.npy": "<U1 of shape",
    }

    for name, expected in words.items():
        with pytest.raises(RefusedError, match=expected):
            read_samples(tmp_path / name)
