"""A headless Chromium for tests: the one that is installed, driven by playwright."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("chromium", "chromium-browser", "google-chrome")


def unavailable() -> str | None:
    """Say why no browser can be driven here; ``None`` if one can."""
    if not any(shutil.which(name) for name in NAMES):
        return "no Chromium is installed (Debian: apt-get install chromium)"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed: pip install playwright"
    return None


@contextmanager
def chromium() -> Iterator[Any]:
    """Run a browser, or skip the test, saying why."""
    if (reason := unavailable()) is not None:
        pytest.skip(f"no browser to look at the page with: {reason}")
    from playwright.sync_api import sync_playwright

    place = next(found for name in NAMES if (found := shutil.which(name)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=place, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, address: str, **context: Any) -> Iterator[Any]:
    """Open a page; errors on its console, and requests to elsewhere, fail the test."""
    said: list[str] = []
    asked: list[str] = []
    session = browser.new_context(**context)
    page = session.new_page()
    page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    session.close()

    assert said == []
    origin = address.split("/")[2]
    elsewhere = [url for url in asked if url.split("/")[2:3] != [origin] and url[:5] != "data:"]
    assert elsewhere == []
