"""The documentation site builds without a warning, is complete, and asks nothing of the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.browser import chromium, opened
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("mkdocs", reason="the optional extra docs is not installed")
pytest.importorskip("mkdocstrings", reason="the optional extra docs is not installed")


class Reader(HTMLParser):
    """What a page is, points to, and loads by itself."""

    def __init__(self, text: str) -> None:
        """Read the page *text*."""
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note names, links and what is fetched."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in {"canonical", "prev", "next"}:
            self.loads.append(given.get("href", ""))
        elif tag != "a" and "src" in given:
            self.loads.append(given["src"])


class Silent(SimpleHTTPRequestHandler):
    """Serves a folder and keeps no log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Build the site once; return its folder and what was said."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout + done.stderr


@pytest.fixture(scope="module")
def pages(built: tuple[Path, str]) -> dict[Path, Reader]:
    """Return every page of the site, read."""
    read = {path: Reader(path.read_text("utf-8")) for path in sorted(built[0].rglob("*.html"))}
    read.pop(built[0] / "404.html")
    return read


def test_the_site_builds_without_a_warning(built: tuple[Path, str]) -> None:
    """Whatever is said is information."""
    assert re.findall(r"^(?:WARNING|ERROR|CRITICAL).*$", built[1], re.MULTILINE) == []


def test_every_page_is_in_the_site(built: tuple[Path, str]) -> None:
    """Each Markdown file of docs has its page, and the navigation leads to it."""
    front = Reader((built[0] / "index.html").read_text("utf-8"))
    for page in (ROOT / "docs").rglob("*.md"):
        name = str(page.relative_to(ROOT / "docs").with_suffix(".html"))
        assert (built[0] / name).is_file(), name
        assert name in front.links, name


def test_links_lead_somewhere(pages: dict[Path, Reader]) -> None:
    """To a file of the site, and to a place in it that exists."""
    lost = []
    for path, reader in pages.items():
        for link in reader.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else {""}
            if not target.is_file() or unquote(parts.fragment) not in anchors | {""}:
                lost.append((path.name, link))

    assert lost == []


def test_the_site_loads_nothing_from_elsewhere(pages: dict[Path, Reader]) -> None:
    """Scripts, styles, fonts and pictures lie in the site."""
    for path, reader in pages.items():
        for load in reader.loads:
            assert not urlsplit(load).netloc, (path.name, load)
            if load and not load.startswith("data:"):
                assert (path.parent / unquote(urlsplit(load).path)).is_file(), (path.name, load)


def test_the_site_works_in_a_browser(built: tuple[Path, str]) -> None:
    """The search finds a page; nothing is said on the console, nothing asked of other hosts."""
    handler = partial(Silent, directory=built[0])
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            place = f"http://127.0.0.1:{listening.server_port}/index.html"
            with chromium() as browser, opened(browser, place) as page:
                page.get_by_role("textbox", name="Search").fill("softmax")
                page.get_by_role("link", name="Writing a what-if of your own").last.wait_for()
        finally:
            listening.shutdown()
            thread.join()


def test_the_python_interface_is_described(built: tuple[Path, str]) -> None:
    """Every name that the package offers is on the page, with its docstring."""
    import foretrace

    text = (built[0] / "api.html").read_text("utf-8")
    for name in {*foretrace.__all__} - {"__version__"}:
        assert f"foretrace.{name}" in text, name
    assert "Repeat the window of" in text
