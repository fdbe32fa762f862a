"""The command line: exit codes, one line per error, and no traceback for anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from foretrace import __version__
from foretrace.cli import app as cli
from foretrace.cli import record_pairs as cli_pairs
from foretrace.errors import ForetraceError
from foretrace.transforms.registry import TRANSFORMS
from tests.support.recordings.kineto import write_small_trace
from tests.support.recordings.malformed import CASES, Case

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = (
    "record",
    "record-pairs",
    "import",
    "summary",
    "replay",
    "whatif",
    "validate",
    "export",
    "transforms",
    "import-nccl-tests",
)


def raising(error: BaseException) -> Any:
    """Return a function that raises *error* whatever it is given."""

    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    return fail


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """--version needs no command."""
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"foretrace {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """--help, and no command at all, names all commands and ends with 0."""
    assert cli.run(arguments) == 0

    shown = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name} " not in shown] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["whatif"], "Missing argument"),
        (["summary", "--nonsense", "x"], "No such option"),
        (["record", "x:y", "--steps", "0"], "'--steps'"),
        (["validate", "a", "b", "amp", "--measured-ms", "fast"], "'--measured-ms'"),
    ],
)
def test_wrong_usage_is_exit_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage is one line on standard error and exit code 2."""
    assert cli.run(arguments) == 2

    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out


@pytest.mark.parametrize("command", ["summary", "replay"])
def test_missing_file_is_exit_1(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is not there is one line that names it."""
    assert cli.run([command, str(tmp_path / "gone.json")]) == 1

    said = capsys.readouterr().err
    assert "gone.json" in said
    assert said.count("\n") == 1


def test_an_empty_name_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    """As a shell gives it for a variable that is not set."""
    assert cli.run(["whatif", "", "amp"]) == 1
    assert "internal error" not in capsys.readouterr().err


def test_unknown_transform_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The scenario is read before the trace, so a typing error costs no time."""
    assert cli.run(["whatif", str(tmp_path / "gone.json"), "faster_kernel(speedup=2)"]) == 1

    said = capsys.readouterr().err
    assert said == "foretrace: unknown what-if 'faster_kernel'; did you mean faster_kernels?\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ForetraceError("a\nb"), 1, "foretrace: a b\n"),
        (OSError(28, "No space left on device", "out.json"), 1, "out.json: No space left"),
        (OSError("just text"), 1, "just text"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError("boom"), 1, "internal error, RuntimeError: boom; please report it"),
    ],
)
def test_every_failure_is_one_line(
    error: BaseException,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is raised below ends as one line, never as a traceback."""
    monkeypatch.delenv("FORETRACE_DEBUG", raising=False)
    monkeypatch.setattr(cli, "app", raising(error))

    assert cli.run(["summary", "x"]) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


def test_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORETRACE_DEBUG=1 adds where an internal error came from."""
    monkeypatch.setenv("FORETRACE_DEBUG", "1")
    monkeypatch.setattr(cli, "app", raising(RuntimeError("boom")))

    assert cli.run(["summary", "x"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``foretrace transforms | head -1`` ends quietly."""
    monkeypatch.setattr(cli, "app", raising(BrokenPipeError()))
    monkeypatch.setattr(sys, "stdout", sys.stdout)

    assert cli.run(["transforms"]) == 0
    sys.stdout.close()
    assert not capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["transforms"], ["--help"]])
def test_a_closed_pipe_ends_quietly_with_0(arguments: list[str]) -> None:
    """The reader of the real process has gone before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "foretrace", *arguments],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, b"")


def test_output_that_nobody_wants_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started with both streams closed, as ``>&- 2>&-`` does, a command does its work."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "argv", ["foretrace", "replay", str(write_small_trace(tmp_path))])

    assert cli.main() == 0
    sys.stdout.close()
    sys.stderr.close()


def test_an_interrupt_inside_a_command_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C reaches us as typer's exit code."""
    monkeypatch.setattr(
        "foretrace.analysis.whatif_catalog.list_what_ifs", raising(KeyboardInterrupt())
    )

    assert cli.run(["transforms"]) == 130
    assert capsys.readouterr().err == "foretrace: interrupted\n"


def test_transforms_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The list has a name, parameters and an effect per transform."""
    assert cli.run(["transforms", "--json"]) == 0

    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["transforms"]}
    assert listed["faster_host"]["parameters"] == "speedup: float"
    assert listed["faster_host"]["effect"].endswith(".")
    assert listed["faster_host"]["status"] == {"gpu": "unvalidated", "cpu": "unvalidated"}
    assert listed["batch_size"]["status"]["cpu"] == "validated"
    assert sum(place["untuned"] for place in listed["batch_size"]["evidence"]) >= 2


def test_transforms_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A line each: the name, where measured pairs tested it, what it does."""
    assert cli.run(["transforms"]) == 0

    told = capsys.readouterr().out
    assert len(told.splitlines()) == 1 + len(TRANSFORMS) + 1
    assert re.search(r"^  faster_host  +-  +Run everything on the host", told, re.MULTILINE)
    assert re.search(r"^  batch_size  +cpu validated  ", told, re.MULTILINE)


def test_one_transform_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """Its parameters, what it assumes and does not know, an example, and what tested it."""
    assert cli.run(["transforms", "batch_size"]) == 0

    told = capsys.readouterr().out
    assert told.startswith(
        "batch_size(n: int, recorded: int | None = None, other: str | None = None)\n"
    )
    for part in ("\nParameters\n", "\nAssumes: ", "\nUnknown: ", "\nSource: ", "\n>>> "):
        assert part in told
    assert "\nStatus, at best: cpu validated\nTested by\n" in told
    assert re.search(r"\n  - \d+ pairs, AMD CPU with 16-bit products, \d+ of them tuned on ", told)
    assert "---" not in told

    assert cli.run(["transforms", "faster_host", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["description"].startswith("Run everything")
    assert cli.run(["transforms", "faster_hots"]) == 1
    assert capsys.readouterr().err.endswith("did you mean faster_host?\n")


def test_a_transform_of_the_users_own_in_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stands in no list, and can be shown."""
    mine = tmp_path / "mine.py"
    mine.write_text('def change(graph, *, by):\n    """Do it.  [b]x[/b]"""\n', "utf-8")

    assert cli.run(["transforms", f"{mine}:change"]) == 0
    assert capsys.readouterr().out == (
        f"{mine}:change(by: Any)\nDo it.  [b]x[/b]\n\nStatus, at best: unvalidated\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--minutes", "0"], 2, "--minutes is 0"),
        (["--minutes", "nan"], 2, "--minutes is nan"),
        (["--cpu", "--out", __file__], 1, "test_app.py: File exists"),
        (["--cpu", "--models", "no_such_model"], 1, "no_such_model"),
    ],
)
def test_record_pairs_refuses(
    arguments: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A budget of nothing is wrong usage; an unknown model is a bad input."""
    assert cli_pairs.main(["--out", str(tmp_path), *arguments]) == code
    assert said in capsys.readouterr().err


def test_wrong_usage_of_record_pairs_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own parser, too, says in one line what is wrong."""
    with pytest.raises(SystemExit) as end:
        cli_pairs.main(["--minutes", "few"])

    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.startswith("foretrace: argument --minutes: invalid float value: 'few'")
    assert said.count("\n") == 1


def test_record_pairs_names_a_missing_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without torch the line says what to install."""
    monkeypatch.setitem(sys.modules, "foretrace.tracer.lab.pairs.record_pairs", None)

    assert cli_pairs.main([]) == 1
    assert "recording needs" in capsys.readouterr().err


def test_record_pairs_passes_its_options_through() -> None:
    """The typer command hands everything, --help included, to its own parser."""
    with pytest.raises(SystemExit) as end:
        cli.run(["record-pairs", "--help"])

    assert end.value.code == 0


def test_script_and_module_are_the_same_door() -> None:
    """``python -m foretrace`` works and ends with the command's exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "foretrace", "nonsense"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert done.stderr.startswith("foretrace: ")


REPORTED = (
    ["summary", "TRACE"],
    ["replay", "TRACE"],
    ["whatif", "TRACE", "faster_kernels(speedup=2)"],
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("command", REPORTED, ids=lambda command: command[0])
def test_odd_files_never_give_a_traceback(
    command: list[str], case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An odd file ends in one object, or in one line about the file; never in a bug report."""
    path = str(case.write(tmp_path))
    code = cli.run([path if word == "TRACE" else word for word in command] + ["--json"])

    shown = capsys.readouterr()
    assert "internal error" not in shown.err
    assert shown.err.count("\n") == code <= 1
    assert not code or not shown.out
    if case.error is None and command[0] == "summary":
        assert not code, shown.err


def keys_of(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Run a command on the small trace and return the object it prints."""
    path = str(write_small_trace(folder))

    assert cli.run([path if word == "TRACE" else word for word in arguments] + ["--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_the_keys_of_a_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times are ms, the error is signed percent of the measured step."""
    found = keys_of(["replay", "TRACE"], tmp_path, capsys)

    assert found["measured_step_ms"] == pytest.approx(1.0)
    assert found["error_pct"] == pytest.approx(
        100 * (found["replayed_step_ms"] / found["measured_step_ms"] - 1), abs=1e-3
    )


def test_the_keys_of_a_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every stable key is there; unknown is null and never left out."""
    scenario = "faster_kernels(speedup=2)"
    found = keys_of(["validate", "TRACE", "TRACE", scenario], tmp_path, capsys)

    assert found.keys() >= {
        "measured_step_ms",
        "replayed_step_ms",
        "error_pct",
        "baseline_step_ms",
        "predicted_step_ms",
        "speedup",
        "interval_ms",
        "measured_after_ms",
        "null_no_change_error_pct",
        "null_paper_error_pct",
        "critical_path",
        "assumptions",
        "doubts",
        "warnings",
        "status",
    }
    low, high = found["interval_ms"]
    assert low <= found["predicted_step_ms"] <= high
    assert found["status"] in {"validated", "unvalidated"}
    assert found["null_no_change_error_pct"] == 0


def test_import_keeps_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The converted file gives the same replay."""
    direct = keys_of(["replay", "TRACE"], tmp_path, capsys)
    out = tmp_path / "trace.parquet"

    assert cli.run(["import", str(tmp_path / "small_trace.json"), "--out", str(out)]) == 0
    assert "1 rank(s)" in capsys.readouterr().out
    assert cli.run(["replay", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == direct


def test_export_says_how_to_open_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plain export needs no transform."""
    out = tmp_path / "timeline.json"

    assert cli.run(["export", str(write_small_trace(tmp_path)), "--out", str(out)]) == 0
    assert "ui.perfetto.dev" in capsys.readouterr().out
    assert json.loads(out.read_text("utf-8"))["traceEvents"]


def test_a_target_that_is_not_there_is_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that cannot be found is one line that names it."""
    assert cli.run(["record", "no_such_file.py:job", "--out", str(tmp_path / "t.parquet")]) == 1

    said = capsys.readouterr().err
    assert "no_such_file.py" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["record", "JOB", "--out", "gone/t.parquet"], "gone/t.parquet: cannot write there"),
        (["record", "JOB", "--out", "."], ".: cannot write there (not a regular file)"),
        (["import", "no_trace.json", "--out", "gone/t.parquet"], "gone/t.parquet: cannot write"),
        (["export", "no_trace.json", "--out", "gone/t.json"], "gone/t.json: No such file"),
        (["sensitivity", "no_trace.json", "--plot", "gone/t.svg"], "gone/t.svg: No such file"),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_a_file_that_cannot_be_written_is_known_before_the_work(
    command: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job is not even imported, the trace not read."""
    if "--plot" in command:
        pytest.importorskip("matplotlib", reason="the optional extra plot is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text("raise AssertionError('imported')", "utf-8")

    assert cli.run(["job.py:job" if word == "JOB" else word for word in command]) == 1
    assert capsys.readouterr().err.startswith(f"foretrace: {said}")


def test_a_what_if_without_a_word_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the user's own, with no docstring."""
    (tmp_path / "mine.py").write_text("def change(graph):\n    return graph\n", "utf-8")

    assert cli.run(["transforms", f"{tmp_path}/mine.py:change"]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/mine.py:change()\n")


def test_what_a_terminal_might_obey_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """A name of a file may hold colours, and line ends."""
    assert cli.run(["replay", "\x1b[31mred\x07\n.json"]) == 1
    assert capsys.readouterr().err.startswith("foretrace: \ufffd[31mred\ufffd .json")


def test_compiled_code_is_interrupted_as_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wraps the user's Ctrl-C into an error of its own."""

    def stopped(*_: object, **__: object) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr(import_module("foretrace.analysis.unchanged.identity"), "identity", stopped)

    assert cli.run(["replay", str(write_small_trace(tmp_path))]) == 130
    assert capsys.readouterr().err == "foretrace: interrupted\n"


def test_a_speechless_error_of_a_users_own_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its class and the what-if are named, and nothing is reported as our own fault."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\n\n"
        "def change(graph):\n    raise Mute\n",
        "utf-8",
    )

    assert cli.run(["whatif", str(write_small_trace(tmp_path)), f"{mine}:change"]) == 1
    assert capsys.readouterr().err == (
        f"foretrace: {mine}:change failed: Mute: (its text cannot be shown)\n"
    )


def test_an_internal_error_that_cannot_speak_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of defence holds."""

    class Mute(Exception):  # noqa: N818 - it is about its text
        def __str__(self) -> str:
            raise ValueError

    monkeypatch.setattr(cli, "app", raising(Mute()))

    assert cli.run(["summary", "x"]) == 1
    assert "internal error, Mute: (its text cannot be shown)" in capsys.readouterr().err


def test_recording_is_shown_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a while, and says what it does meanwhile."""
    pytest.importorskip("torch")
    job = tmp_path / "idle_job.py"
    job.write_text(
        "import torch\nfrom foretrace.tracer.job import Job\n\n"
        "def job():\n    return Job(lambda: torch.zeros(9).sum(), name='idle')\n",
        "utf-8",
    )
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    out = tmp_path / "t.parquet"
    assert cli.run(["record", f"{job}:job", "--steps", "1", "--out", str(out)]) == 0
    assert "recording idle …\r" in capsys.readouterr().err
    assert out.is_file()


def test_progress_is_shown_to_a_terminal_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal each stage is named and removed again."""
    path = str(write_small_trace(tmp_path))
    assert cli.run(["replay", path]) == 0
    assert not capsys.readouterr().err

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert cli.run(["replay", path]) == 0
    shown = capsys.readouterr().err
    assert "reading small_trace.json …\r" in shown
    assert shown.endswith("\x1b[K")


def test_names_from_a_trace_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Escape sequences in kernel names are shown, not obeyed."""
    path = write_small_trace(tmp_path)
    text = path.read_text("utf-8").replace("ampere_sgemm", "\\u001b[2Jampere_sgemm")
    path.write_text(text, "utf-8")

    assert cli.run(["summary", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\N{REPLACEMENT CHARACTER}[2Jampere_sgemm" in shown
