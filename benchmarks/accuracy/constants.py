"""Every constant without a published source in, the section of the accuracy page about them out."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

import foretrace.transforms
from benchmarks.accuracy.markdown import table
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.devices import list_assumed_figures

if TYPE_CHECKING:
    from collections.abc import Iterator


def list_constants() -> list[Assumed]:
    """Return every `Assumed` of the what-ifs and of the table of devices, by name."""
    return sorted({*_declared(), *list_assumed_figures()}, key=lambda each: each.name.lower())


def _declared() -> Iterator[Assumed]:
    package = foretrace.transforms
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        values = vars(importlib.import_module(module.name)).values()
        yield from (value for value in values if isinstance(value, Assumed))


def constants() -> list[str]:
    """Return the section: value, range, where it comes from, and the pairs it was tuned on."""
    columns = ("constant", "value", "range", "tuned on", "where from")
    lines = [
        (
            each.name,
            f"{each.value:,g}",
            f"{each.least:,g} … {each.most:,g}",
            "; ".join(each.tuned_on) or "no pair",
            each.why,
        )
        for each in list_constants()
    ]
    return [
        "## Constants without a published source",
        "",
        "The interval of an answer that uses one spans the answers at both ends of its range.",
        "Pairs that one was tuned on validate nothing.",
        "",
        *table(columns, lines),
        "",
    ]
