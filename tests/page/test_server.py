"""The served page: quick answers, the given traces alone, and nobody else's questions."""

from __future__ import annotations

import http.client
import json
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import ForetraceError, TransformError
from foretrace.graph.literal import literal
from foretrace.page import server as serve
from foretrace.page.server import ServedTrace, Site, check_headers, listen, parse_question
from foretrace.transforms.foreign_scenario import _texts, names_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GRAPH = literal(
    [
        ("cudaLaunchKernel", "launch", 0, 2_000, None),
        ("ampere_sgemm_128x64_nn", "kernel", 1, 30_000, None),
    ],
    [(0, 1, "launch", 4_000)],
    wrap=True,
)
SITE = Site([ServedTrace("one.json", GRAPH), ServedTrace("two.json", GRAPH)], "1.2.3")


def answered(target: str) -> tuple[int, dict[str, Any]]:
    """Return status and content of an answer."""
    found = SITE.answer(target)
    return found.status, json.loads(found.content)


@pytest.fixture
def port() -> Iterator[int]:
    """Serve on a free port for one test."""
    with listen(SITE, 0) as listening:
        thread = Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield listening.server_address[1]
        listening.shutdown()
        thread.join()


def get(port: int, target: str, **headers: str) -> tuple[int, bytes]:
    """Ask the server as a browser does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", target, headers=sent)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, content


def test_a_prediction_is_asked_by_what_ifs() -> None:
    """The answer is the view of the scenario; kernels at double speed take half."""
    status, found = answered("/api/view?trace=1&whatif=faster_kernels(speedup%3D2)")

    assert status == 200
    assert found["scenario"] == ["faster_kernels(speedup=2)"]
    assert found["predicted_step_ms"] == 0.016


def test_the_outlook_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes long, and the job does not change."""
    assert answered("/api/outlook?trace=0")[1]["advice"]["measured_step_ms"] == 0.032
    monkeypatch.setattr(serve, "outlook", None)

    assert answered("/api/outlook?trace=0")[0] == 200


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/api/view?trace=2", 200, "there is no trace number '2': 2 were given"),
        ("/api/view?trace=-1", 200, "no trace number"),
        ("/api/view?whatif=nonsense", 200, "unknown what-if 'nonsense'"),
        ("/api/view?whatif=faster_kernels(speedup%3D0)", 200, "speedup"),
        ("/../etc/passwd", 404, "no such page"),
        ("/api", 404, "no such page"),
        ("//[", 404, "no such page"),
        (f"/api/view?trace={'9' * 5000}", 200, "no trace number"),
    ],
)
def test_a_wrong_question_gets_a_sentence(target: str, status: int, said: str) -> None:
    """Never a traceback, and one line."""
    found = answered(target)

    assert found[0] == status
    assert said in found[1]["error"]
    assert "\n" not in found[1]["error"]


def test_a_fault_of_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server goes on."""

    def fail(*_args: object) -> None:
        raise KeyError("lane")

    monkeypatch.setattr(serve, "view", fail)

    assert answered("/api/view") == (500, {"error": "internal error, KeyError: 'lane'"})


@pytest.mark.parametrize(
    "text",
    [
        "mine.py:slower(factor=2)",
        "os:system",
        "scenario.toml",
        "amp.toml",
        "ddp(workers=2, cluster='mine.toml')",
    ],
)
def test_files_and_code_of_the_users_are_not_read(text: str) -> None:
    """Only the traces that were given are."""
    with pytest.raises(ForetraceError, match="not read here"):
        parse_question([text])


def test_a_file_without_an_ending_is_not_read_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster may be named by any file, also deep inside a parameter."""
    (tmp_path / "mine").write_text("", "utf-8")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(TransformError, match="ddp: cluster names a file"):
        parse_question(["ddp(workers=2, cluster='mine')"])
    assert names_file("x" * 5_000) is False
    assert list(_texts([{"a": ["b", ("c", 1)]}])) == ["a", "b", "c"]


def test_presets_and_patterns_are_welcome() -> None:
    """What is no file passes."""
    [what_if] = parse_question([' faster_kernels(pattern="a/b|c", speedup=2) '])

    assert what_if.parameters["pattern"] == "a/b|c"


def test_too_many_what_ifs_are_refused() -> None:
    """A page never asks so many."""
    with pytest.raises(TransformError, match="17 what-ifs are too many"):
        parse_question(["amp"] * 17)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Host": "localhost:80"}, None),
        ({"Host": "127.0.0.1:80", "Origin": "http://localhost:80"}, None),
        ({"Host": "localhost:80", "Sec-Fetch-Site": "same-origin"}, None),
        ({"Host": "evil.example:80"}, "localhost alone"),
        ({"Host": "localhost:81"}, "localhost alone"),
        ({}, "localhost alone"),
        ({"Host": "localhost:80", "Origin": "http://evil.example"}, "another site"),
        ({"Host": "localhost:80", "Origin": "null"}, "another site"),
        ({"Host": "localhost:80", "Sec-Fetch-Site": "cross-site"}, "another site"),
    ],
)
def test_who_may_ask(headers: dict[str, str], said: str | None) -> None:
    """The machine by its own names, and pages of this server."""
    found = check_headers(80, *map(headers.get, ("Host", "Origin", "Sec-Fetch-Site")))

    assert found is None if said is None else said in str(found)


def test_the_page_is_served(port: int) -> None:
    """It knows the traces and what can be asked, and may stand in no frame."""
    status, content = get(port, "/")

    assert status == 200
    assert b'"traces":["one.json","two.json"]' in content
    assert b'"version":"1.2.3"' in content


def test_foreign_requests_are_refused_on_the_wire(port: int) -> None:
    """Another name for this machine, another origin, a request without end."""
    assert get(port, "/", Host="evil.example")[0] == 403
    assert get(port, "/api/view", Origin="http://evil.example")[0] == 403
    assert b"too long" in get(port, "/api/view?whatif=" + "a" * 9_000)[1]


def test_only_questions_are_answered(port: int) -> None:
    """There is nothing to be changed here."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/api/view")

    assert connection.getresponse().status == 501
    connection.close()


def test_it_listens_on_this_machine_alone(port: int) -> None:
    """The address is the loopback's."""
    with listen(SITE, 0) as listening:
        assert listening.server_address[0] == "127.0.0.1"
    assert port


def test_browsers_leave_out_the_port_80() -> None:
    """The name alone is this server there, and nowhere else."""
    assert check_headers(80, "localhost", "http://localhost", "same-origin") is None
    assert check_headers(8765, "localhost", None, None) is not None
