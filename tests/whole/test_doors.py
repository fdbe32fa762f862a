"""What README, pages and examples import is public, and the places they name exist."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

import foretrace
from foretrace import edit
from tests.support.docs.blocks import PAGES, items
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

DOORS = ("foretrace", "foretrace.edit", "foretrace.testing", "foretrace.whatif")
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
FOLDERS = "foretrace|tracer|graph|transforms|replay|tests|docs|benchmarks|examples|traces"
PLACE = re.compile(rf"`((?:{FOLDERS})/[\w./*-]*)`")
MODULE = re.compile(r"`(foretrace(?:\.(?!NAME\b)\w+)+)")


def strangers(code: str) -> Iterator[str]:
    """Yield what *code* takes from the package otherwise than through its doors."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if is_own(a.name) and a.name not in DOORS)
        elif isinstance(node, ast.ImportFrom) and is_own(str(node.module)):
            public = dir(import_module(node.module)) if node.module in DOORS else ()
            yield from (f"{node.module}.{a.name}" for a in node.names if a.name not in public)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "foretrace":
            yield from {f"foretrace.{node.attr}"} - {f"foretrace.{name}" for name in dir(foretrace)}


def is_own(module: str) -> bool:
    """Tell whether *module* is of the package."""
    return module.partition(".")[0] == "foretrace"


@pytest.mark.parametrize("page", PAGES)
def test_pages_import_public_names(page: str) -> None:
    """In blocks that are executed, and in files that a reader writes."""
    for item in items((ROOT / page).read_text("utf-8"), page):
        if item.language == "python":
            assert list(strangers(item.text)) == [], str(item)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_import_public_names(name: str) -> None:
    """They are what users begin with."""
    assert list(strangers((ROOT / "examples" / name).read_text("utf-8"))) == []


def test_what_is_not_public_is_named() -> None:
    """Deep modules, names that a door lacks, and attributes; other packages are nobody's matter."""
    code = (
        "import torch.nn, foretrace, foretrace.graph.model\n"
        "from foretrace import Job, check\n"
        "from foretrace.edit import scale, sacle\n"
        "from foretrace.tracer.trace import Trace\n"
        "foretrace.load; foretrace.analysis.advise\n"
    )

    assert sorted(strangers(code)) == [
        "foretrace.analysis",
        "foretrace.check",
        "foretrace.edit.sacle",
        "foretrace.graph.model",
        "foretrace.tracer.trace.Trace",
    ]


@pytest.mark.parametrize("page", PAGES)
def test_places_that_pages_name_exist(page: str) -> None:
    """Files, folders and modules, as the map of the rooms and the text spell them."""
    text = (ROOT / page).read_text("utf-8")

    assert [place for place in PLACE.findall(text) if not any(ROOT.glob(place))] == []
    assert [name for name in MODULE.findall(text) if not resolves(name)] == []


def resolves(name: str) -> bool:
    """Tell whether *name* is a module of the package, or something in one."""
    try:
        import_module(name)
    except ImportError:
        module, _, attribute = name.rpartition(".")
        return bool(module) and hasattr(import_module(module), attribute)
    return True


def test_the_map_names_a_place_in_every_row() -> None:
    """What to open for a change stands in the second column; what it has in it is there."""
    text = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    rows = re.findall(r"^\| (?:add|read|name|record|change|offer) .*$", text, re.MULTILINE)

    named = re.findall(r"`(\w+)` in `([\w/]+\.\w+)`", "".join(rows))

    assert len(rows) >= 20
    assert len(named) >= 8
    assert [(n, place) for n, place in named if n not in (ROOT / place).read_text("utf-8")] == []
    assert [row for row in rows if not PLACE.search(row.split(" | ")[1])] == []


def test_all_that_edits_graphs_is_in_the_table() -> None:
    """Every name of `foretrace.edit` stands in the page about what-ifs of one's own."""
    page = (ROOT / "docs" / "writing-your-own.md").read_text("utf-8")
    table = page[page.index("| to | use |") :]
    rows = re.findall(r"^\| .* \| (.*) \|$", table, re.MULTILINE)

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(edit.__all__)
