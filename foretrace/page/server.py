"""The page live on this machine: what-ifs asked by a browser, predictions answered at once.

Only the traces given are read. The server listens on the loopback address and answers nobody who
calls it by another name or from another site's page; a what-if that would read a file, or run
code of the user's own, is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from foretrace.analysis.unchanged.baseline import replay_baseline, replay_scenario
from foretrace.errors import ForetraceError, TransformError
from foretrace.page.data import outlook, view
from foretrace.page.html import as_json, render_page
from foretrace.transforms.foreign_scenario import parse_foreign_scenario
from foretrace.transforms.scenario import describe
from foretrace.util.import_target import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import Scenario

ADDRESS = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")
HTTP = 80
"""Browsers leave this port out."""
MOST_WHATIFS = 16
LONGEST_PATH = 8_192
"""Characters of a request's path and query; what-ifs are short."""
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class ServedTrace:
    """One trace to ask about."""

    name: str
    graph: Graph

    @cached_property
    def baseline(self) -> Baseline:
        """Its replay without any change."""
        return replay_baseline(self.graph)

    @cached_property
    def outlook(self) -> dict[str, Any]:
        """What to try next."""
        return outlook(self.baseline)


@dataclass(frozen=True)
class Answer:
    """Status, type and content of a response."""

    status: int
    kind: str
    content: bytes


@dataclass(frozen=True)
class Site:
    """What can be asked about *traces*: predictions one at a time, and beside them one outlook."""

    traces: Sequence[ServedTrace]
    version: str
    quick: Lock = field(default_factory=Lock)
    slow: Lock = field(default_factory=Lock)

    def answer(self, target: str) -> Answer:
        """Answer a request for *target*: ``/``, ``/api/view`` or ``/api/outlook``."""
        path, query = _split_target(target)
        try:
            if path == "/":
                return self._page()
            if path == "/api/view":
                return self._view(self._trace(query), query.get("whatif", ()))
            if path == "/api/outlook":
                with self.slow:
                    return _json(200, self._trace(query).outlook)
        except ForetraceError as error:
            return _refuse(200, str(error))  # an answer too: why it cannot be predicted
        except Exception as error:  # noqa: BLE001  # the last line of defence
            return _refuse(500, f"internal error, {type(error).__name__}: {first_line(error)}")
        return _refuse(404, "there is no such page")

    def _trace(self, query: Mapping[str, Sequence[str]]) -> ServedTrace:
        text = query.get("trace", ["0"])[0]
        traces = {str(number): trace for number, trace in enumerate(self.traces)}
        if text not in traces:
            raise TransformError(f"there is no trace number {text!r}: {len(traces)} were given")
        return traces[text]

    def _view(self, trace: ServedTrace, texts: Sequence[str]) -> Answer:
        scenario = parse_question(texts)
        with self.quick:
            return _json(200, view(replay_scenario(trace.baseline, scenario)))

    def _page(self) -> Answer:
        live = {"traces": [trace.name for trace in self.traces], "transforms": describe()}
        with self.quick:
            unchanged = view(replay_scenario(self.traces[0].baseline, ()))
        data = {**unchanged, "version": self.version, "live": live}
        content = render_page(data, "This page needs scripts.")
        return Answer(200, "text/html; charset=utf-8", content)


def _split_target(target: str) -> tuple[str, dict[str, list[str]]]:
    """Return the path and the query of a request; of what is no address, none.

    >>> _split_target("/api/view?trace=1"), _split_target("//[")
    (('/api/view', {'trace': ['1']}), ('', {}))
    """
    try:
        parts = urlsplit(target)
    except ValueError:
        return "", {}
    return parts.path, parse_qs(parts.query, keep_blank_values=True)


def parse_question(texts: Sequence[str]) -> Scenario:
    """Return the scenario that *texts* ask for.

    Raises
    ------
    TransformError
        There are too many, one is wrong, or it names a file: of a scenario, a cluster, or code.
    """
    if len(texts) > MOST_WHATIFS:
        raise TransformError(f"{len(texts)} what-ifs are too many here; ask at most {MOST_WHATIFS}")
    return parse_foreign_scenario(texts)


def listen(site: Site, port: int) -> ThreadingHTTPServer:
    """Return a server of *site* on *port* of this machine alone; 0 takes a free one."""
    return _Server(site, port)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, site: Site, port: int) -> None:
        self.site = site
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            reason = f"port {port}: {error.strerror}; give another --port, or 0 for any"
            raise ForetraceError(reason) from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that leaves early is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "foretrace"
    sys_version = ""
    timeout = 60  # seconds until an idle connection is closed
    server: _Server

    def do_GET(self) -> None:
        """Answer, or say why not."""
        names = ("Host", "Origin", "Sec-Fetch-Site")
        reason = check_headers(self.server.server_port, *(self.headers.get(name) for name in names))
        if reason is None and len(self.path) > LONGEST_PATH:
            reason = "the request is too long"
        answer = self.server.site.answer(self.path) if reason is None else _refuse(403, reason)
        self.send_response(answer.status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Log nothing."""


def check_headers(port: int, host: str | None, origin: str | None, fetch: str | None) -> str | None:
    """Say why a request with these headers is not answered; ``None`` if it is.

    A *host* other than this machine means that somebody else's name leads here; another *origin*,
    or a *fetch* (Sec-Fetch-Site) from elsewhere, that somebody else's page asks.
    """
    hosts = {f"{name}:{port}" for name in NAMES} | (set(NAMES) if port == HTTP else set())
    if host not in hosts:
        return "this server answers to localhost alone"
    is_own = origin is None or origin in {f"http://{each}" for each in hosts}
    if not is_own or fetch not in {None, "none", "same-origin"}:
        return "another site's page may not ask here"
    return None


def _json(status: int, data: Mapping[str, Any]) -> Answer:
    return Answer(status, "application/json", as_json(data).encode())


def _refuse(status: int, reason: str) -> Answer:
    return _json(status, {"error": " ".join(reason.split())})
