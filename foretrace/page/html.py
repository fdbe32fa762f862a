"""Page data in, one HTML file out that needs no network: style, scripts and data lie in it.

Everything that came from a trace is data to the scripts, which only ever set text; where scripts
are off, the same report stands as plain text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCRIPTS = ("dom.js", "timeline.js", "curves.js", "sections.js", "job.js", "live.js", "page.js")
"""In the order in which they build on each other."""
ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}
"""Nothing in the data can end the element that holds it."""


def render_page(data: Mapping[str, Any], text: str) -> bytes:
    """Return the page that shows *data*, see `foretrace.page.data`; *text* says it without scripts.

    >>> b"</script><b>" in render_page({"job": {"source": "</script><b>"}}, "<b>")
    False
    """
    style, script = _asset("page.css"), "".join(_asset(name) for name in SCRIPTS)
    return (
        Template(_asset("page.html"))
        .substitute(
            policy=_policy(style, script),
            title=escape(_title(data)),
            style=style,
            script=script,
            data=as_json(data).translate(ESCAPES),
            text=escape(text),
        )
        .encode("utf-8", "replace")
    )


def write_page(data: Mapping[str, Any], text: str, path: Path) -> None:
    """Write the page to *path*, completely or not at all."""
    write_atomically(path, render_page(data, text))


def as_json(data: Mapping[str, Any]) -> str:
    """Return *data* as one line of ASCII."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _policy(style: str, script: str) -> str:
    """Return the content security policy: this style and this script, and nobody else's."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _title(data: Mapping[str, Any]) -> str:
    asked = " + ".join(data.get("scenario", ())) or "as recorded"
    return f"{asked} – {data.get('job', {}).get('source', 'Foretrace')}"


@cache
def _asset(name: str) -> str:
    return files("foretrace.page").joinpath(name).read_text("utf-8")
