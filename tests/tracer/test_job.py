"""Finding and running the job that a user names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import RecordError
from foretrace.tracer.job import Job, load_job, runner

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
from foretrace.tracer.job import Job
from helper_beside import NAME
def job(): return Job(lambda: None, name=NAME)
def fails(): raise KeyError("no data")
def wrong(): return 3
def leaves(): raise SystemExit
def unfit(): return Job(3)
constant = 5
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a script with good and bad job functions, and a module beside it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "helper_beside.py").write_text("NAME = 'mine'\n")
    path = tmp_path / "some_script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_a_file_and_a_function_give_the_job(script: str) -> None:
    """The script may import what lies beside it, as when Python runs it."""
    assert load_job(f"{script}:job").name == "mine"


def test_a_module_and_a_function_give_the_job(script: str) -> None:
    """A module is imported by its name."""
    load_job(f"{script}:job")
    assert load_job("some_script:job").name == "mine"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("{script}", "names no job: write file.py:function"),
        ("{script}:", "names no job"),
        (":job", "names no job"),
        ("{script}:a.b", "names no job"),
        ("nowhere.py:job", "nowhere.py is no file"),
        ("{script}:absent", "has no function 'absent'"),
        ("{script}:constant", "has no function 'constant'"),
        ("{script}:fails", "failed: KeyError: 'no data'"),
        ("{script}:leaves", "ended the program: sys.exit(None); return from the function"),
        ("{script}:unfit", "job 'job': step must be callable"),
        ("{script}:wrong", "returned int: return a foretrace.Job"),
        ("no_such_module_here:job", "importing no_such_module_here failed: ModuleNotFoundError"),
    ],
)
def test_what_names_no_job_is_one_clear_line(script: str, target: str, text: str) -> None:
    """Every wrong target says what is wrong, on one line."""
    with pytest.raises(RecordError) as caught:
        load_job(target.format(script=script))
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_script_that_does_not_compile_is_one_clear_line(tmp_path: Path) -> None:
    """A syntax error names its place."""
    path = tmp_path / "broken_script.py"
    path.write_text("def job(:\n")
    with pytest.raises(RecordError, match=r"importing .* failed: SyntaxError"):
        load_job(f"{path}:job")
    assert "broken_script" not in sys.modules


def test_a_script_that_ends_the_program_is_one_clear_line(tmp_path: Path) -> None:
    """A script that trains when imported, and then exits, defines no job."""
    path = tmp_path / "leaving_script.py"
    path.write_text("raise SystemExit(0)\n")
    with pytest.raises(RecordError, match=r"importing .* ended the program: sys.exit\(0\)"):
        load_job(f"{path}:job")


def test_a_step_without_loader_takes_no_argument() -> None:
    """The step is called as it is."""
    calls: list[str] = []
    run = runner(Job(lambda: calls.append("step")))
    run()
    run()
    assert calls == ["step", "step"]


def test_a_loader_is_started_again_when_it_runs_out() -> None:
    """Two batches serve three steps."""
    seen: list[int] = []
    run = runner(Job(seen.append, loader=[1, 2]))
    for _ in range(3):
        run()
    assert seen == [1, 2, 1]


def test_an_empty_loader_is_an_error() -> None:
    """A loader without batches would loop for ever."""
    with pytest.raises(RecordError, match="the loader of 'empty' gave no batch"):
        runner(Job(print, loader=[], name="empty"))()


def test_the_device_decides_whether_timing_waits() -> None:
    """A stated device is taken at its word; without one, a CPU build has nothing to wait for."""
    assert Job(print, device="cuda:1").uses_cuda
    assert not Job(print, device="cpu").uses_cuda


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"step": 3}, "step must be callable"),
        ({"batch_size": "many"}, "batch_size must be a whole number from 1 on"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1 on"),
        ({"batch_size": True}, "batch_size must be a whole number from 1 on"),
        ({"model": 3}, "model must be a torch.nn.Module"),
        ({"optimizer": 3}, "optimizer must be a torch optimizer"),
        ({"loader": 3}, "loader must be iterable"),
    ],
)
def test_a_wrong_part_of_a_job_is_named_at_once(wrong: dict[str, Any], text: str) -> None:
    """The mistake is one line, and the recording does not begin."""
    with pytest.raises(RecordError, match=f"job 'mine': {text}"):
        Job(**{"step": print, "name": "mine", **wrong})


def test_a_step_that_ends_the_program_is_an_error() -> None:
    """sys.exit in a step would end the recording with exit code 0 and without a trace."""
    with pytest.raises(RecordError, match=r"a step of 'job' ended the program: sys.exit\(0\)"):
        runner(Job(lambda: sys.exit(0)))()
