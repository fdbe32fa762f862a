"""The documentation's pages as lists of what can be tried: commands, Python, files.

A reader's conventions: ``console`` shows ``$ command`` and its output, ``sh`` commands alone; a
block with a ``title`` is that file, other Python is executed; ``text`` and the like are only read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in (
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "traces" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    )
)
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w+-]*)(?P<rest>[^\n`]*)\n(?P<text>.*?)^(?P=indent)``` *$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"(\w+=\S* )*(foretrace|make|python3?|torchrun) ")
"""What a line of a block without a language begins with, if it is a command."""


class Item(NamedTuple):
    """One thing that a page shows: a command with its output, or a block."""

    page: str
    line: int
    language: str  # "sh" for every command
    text: str
    title: str = ""
    output: str | None = None  # None: the page shows none

    def __str__(self) -> str:
        """Say where it stands, as editors spell it, and how it begins."""
        return f"{self.page}:{self.line}: {self.text.partition(chr(10))[0]}"


def items(text: str, page: str) -> Iterator[Item]:
    """Yield everything in the Markdown *text* of *page* that can be tried, from top to bottom."""
    for block in FENCE.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        body = re.sub(rf"^{block['indent']}", "", block["text"], flags=re.MULTILINE)
        named = re.search(r'title="([^"]+)"', block["rest"])
        if named or block["language"] not in {"", "sh", "bash", "console"}:
            yield Item(page, line, block["language"], body, named[1] if named else "")
        elif body.startswith("$ "):
            yield from _with_output(body, page, line + 1)
        else:
            yield from _commands(body, page, line + 1, strict=bool(block["language"]))


def _with_output(body: str, page: str, line: int) -> Iterator[Item]:
    """Yield the commands of a session: ``$ command``, then what it printed."""
    for shown in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
        at = line + body.count("\n", 0, shown.start())
        yield Item(page, at, "sh", shown[1], output=shown[2] or None)


def _commands(body: str, page: str, line: int, *, strict: bool) -> Iterator[Item]:
    """Yield the command of each line; where not *strict*, other lines are a sketch or output."""
    for shown in re.finditer(r"^((?:.*\\\n)*.*)\n", body, re.MULTILINE):
        command = shown[1].replace("\\\n", " ")
        if COMMAND.match(command) or (strict and command.strip() and command[0] != "#"):
            yield Item(page, line + body.count("\n", 0, shown.start()), "sh", command)
