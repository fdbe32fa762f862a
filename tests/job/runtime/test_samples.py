"""Times of steps out of tables, arrays, JSON and what trainings print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import RefusedError
from foretrace.job.runtime.samples import read_samples

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
        (
            "iteration 1 | time per iteration (ms): 500.0 |\n2 | time per iteration (ms): 250.0\n",
            [0.5, 0.25],
        ),
        ("step 1: 2.5 steps/s\nstep 2: 5 steps/sec\n", [0.4, 0.2]),
        ("{'loss': 0.4}\nepoch done, 4 it/s\n", [0.25]),  # no JSON, and only one time
        ('[{"step": 1, "step_time": 0.5}, {"step": 2, "eval_loss": 2.0}]', [0.5]),
        ('{"log_history": [{"loss": 2, "step_time_ms": 500}]}', [0.5]),
        ('{"seconds": 0.5}\n{"seconds": 0.25}\n', [0.5, 0.25]),
        ('{"seconds": 0.5}\n', [0.5]),
        ("[0.5, 0.25]", [0.5, 0.25]),
        ("Step time (ms)\n500\n", [0.5]),
        ("ms\n500\n", [0.5]),
        ("step 1 step time: 2 min\nstep 2 step time: 1.5h\n", [120.0, 5400.0]),
        ("step 1: 0.5 s/it, good\nstep 2: 0.25 s/it.\n", [0.5, 0.25]),
        ("2026-13-41 99:99:99 step 1, 2 it/s\n", [0.5]),  # no such day
    ],
)
def test_times_are_found(tmp_path: Path, text: str, seconds: list[float]) -> None:
    """Whatever wrote them, they come out as seconds."""
    assert read_samples(written(tmp_path, text)).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step 1: 0,412 s/it\nstep 2: 0,415 s/it\n", "line 1: '0,412' is no time"),
        ("step 1 step time: 1,234 ms\nstep 2 step time: 1,2 ms\n", "line 1: '1,234' is no time"),
        ("step 1 step time: -1 s\nstep 2 step time: 1 s\n", r"line 1: -1\.0 is no time"),
        ("seconds\n1e300\n", "line 2: '1e300' is no time"),
        ("seconds\n1e-300\n", "line 2: '1e-300' is no time"),
        ("seconds,seconds\n1,2\n", "two columns are called 'seconds'"),
        ("seconds\n" + 140_000 * "1" + "\n", "no table"),
        (100_000 * "[", "no line says how long a step took"),
        ('[{"seconds": ' + 5000 * "9" + "}]", "is no time|no line says"),
        ("step,seconds\n3,1\n2,1\n1,1\n", "the steps go back 2 times in 3 lines"),
    ],
)
def test_what_would_be_misread_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """A number that Python reads differently, absurd ones, and steps that are in no order."""
    with pytest.raises(RefusedError, match=words):
        read_samples(written(tmp_path, text))


def test_lines_of_several_ranks_count_once(tmp_path: Path) -> None:
    """Each step is one step however many ranks print it, and that is said."""
    lines = "".join(f"[rank{rank}] step {step} 0.5 s/it\n" for step in (10, 20) for rank in "01")

    found = read_samples(written(tmp_path, lines))

    assert (found.seconds.tolist(), found.stride) == ([0.5, 0.5], 10)
    assert found.notes == ("2 lines about the same step as the line before were left out",)


def test_rows_that_lie_apart_are_means_of_what_lies_between(tmp_path: Path) -> None:
    """As lines of a log are; the table may mean single steps, so that it is said."""
    found = read_samples(written(tmp_path, "step,seconds\n10,3\n20,2\n30,2\n"))

    assert (found.seconds.tolist(), found.stride) == ([3, 2, 2], 10)
    assert found.notes == (
        "10 steps lie between two values: each is taken for the mean of as many",
    )


def test_steps_that_begin_again_are_told(tmp_path: Path) -> None:
    """Steps that count within an epoch go back at its end; what follows is later all the same."""
    found = read_samples(written(tmp_path, "step,seconds\n1,3\n2,2\n3,2\n1,2\n2,2\n"))

    assert len(found.seconds) == 5
    assert found.notes == ("the step number goes back 1 times: what follows counts as later",)


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
        ('{"log_history": 3}', "log_history is no list"),
        ("[[0.5], [0.25]]", "entry 1 is neither an object nor a number"),
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
        "bytes": "neither text in UTF-8 nor an array of NumPy",
        "broken.npy": "is no array that can be read",
        "table.npy": r"float64 of shape \(2, 2\); give one number per step",
        "words.npy": "<U1 of shape",
    }

    for name, expected in words.items():
        with pytest.raises(RefusedError, match=expected):
            read_samples(tmp_path / name)
