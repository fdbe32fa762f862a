"""The commands report, serve and export: what they write, and what they refuse at once."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.cli import app as cli
from foretrace.page import server as serve
from tests.support.recordings.kineto import write_small_trace

if TYPE_CHECKING:
    from pathlib import Path


def data_of(page: Path) -> dict[str, Any]:
    """Return the data in a page."""
    [data] = re.findall(r'id="data">(.*?)</script>', page.read_text("utf-8"))
    return dict(json.loads(data))


def test_a_report_holds_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The prediction of `whatif`, and what `advise` and `sensitivity` say."""
    trace, out = str(write_small_trace(tmp_path)), tmp_path / "r.html"

    assert cli.run(["report", trace, "faster_kernels(speedup=2)", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}: open it in a browser\n"
    assert cli.run(["whatif", trace, "faster_kernels(speedup=2)", "--json"]) == 0
    found, prediction = data_of(out), json.loads(capsys.readouterr().out)
    assert {key: found[key] for key in prediction} == prediction
    assert found["advice"]["advice"]
    assert found["sensitivity"]["parts"]
    assert "<noscript><pre>faster_kernels(speedup=2)\n" in out.read_text("utf-8")


def test_an_export_says_its_doubts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A timeline cannot: they go to stderr, and the exit code stays 0."""
    trace, out = str(write_small_trace(tmp_path)), tmp_path / "t.json"

    assert cli.run(["export", trace, "faster_kernels(speedup=2)", "--out", str(out)]) == 0
    assert capsys.readouterr().err == ""
    assert (
        cli.run(
            [
                "export",
                trace,
                "faster_kernels(speedup=99)",
                "faster_host(speedup=99)",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    assert capsys.readouterr().err.startswith("foretrace: many-times: ")


def test_a_report_needs_no_transform(tmp_path: Path) -> None:
    """It then shows the job as it is."""
    out = tmp_path / "r.html"

    assert cli.run(["report", str(write_small_trace(tmp_path)), "--out", str(out)]) == 0
    assert data_of(out)["scenario"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "no.json", "amp", "--out", "gone/r.html"], "gone/r.html: No such file"),
        (["report", "no.json", "nonsense"], "unknown what-if 'nonsense'"),
        (["export", "no.json", "--format", "svg"], "there is no format 'svg'"),
        (["serve", "no.json"], "no.json"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known before the work where it can be."""
    assert cli.run(arguments) == 1

    written = capsys.readouterr().err
    assert said in written
    assert written.count("\n") == 1


def test_export_takes_its_format_from_the_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says what reads the file."""
    trace, out = str(write_small_trace(tmp_path)), tmp_path / "g.graphml"

    assert cli.run(["export", trace, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}: read it with networkx.read_graphml\n"
    assert out.read_bytes().startswith(b"<?xml")


def test_serve_says_where_it_listens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is printed when questions can be asked."""
    monkeypatch.setattr(serve._Server, "serve_forever", lambda _self: None)

    assert cli.run(["serve", str(write_small_trace(tmp_path)), "--port", "0"]) == 0
    assert re.fullmatch(
        r"serving 1 trace\(s\) at http://localhost:\d+/; stop with Ctrl-C\n",
        capsys.readouterr().out,
    )


def test_a_port_that_is_taken_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The port, the system's own words, and what to do."""
    with serve.listen(serve.Site([], ""), 0) as taken:
        port = str(taken.server_address[1])

        assert cli.run(["serve", str(write_small_trace(tmp_path)), "--port", port]) == 1
    said = f"foretrace: port {port}: Address already in use; give another --port, or 0 for any\n"
    assert capsys.readouterr().err == said


@pytest.mark.slow
def test_serving_ends_with_the_user(tmp_path: Path) -> None:
    """A process of its own answers, and stops when interrupted, also one that a shell put aside."""
    command = [
        sys.executable,
        "-c",
        "import sys; from foretrace.cli.app import main; sys.exit(main())",
        "serve",
        str(write_small_trace(tmp_path)),
        "--port",
        "0",
    ]
    with (
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # noqa: PLW1509 - one thread
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert process.stdout is not None
        port = int(re.findall(r"localhost:(\d+)/", process.stdout.readline())[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/api/view?whatif=faster_kernels(speedup%3D2)")

        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == "foretrace: interrupted\n"
