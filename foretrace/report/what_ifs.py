"""Text and JSON of the list of what-ifs, and of one in full; importing this registers them."""

from __future__ import annotations

from typing import Any

from foretrace.analysis.whatif_catalog import Catalog, Entry
from foretrace.report.dispatch import json_keys, text_blocks
from foretrace.report.text_layout import ASIDE, Blocks, heading, note_list, table, text


@json_keys.register(Catalog)
def _catalog_keys(report: Catalog) -> dict[str, Any]:
    return {"transforms": [_listed_keys(entry) for entry in report.entries]}


@json_keys.register(Entry)
def _entry_keys(entry: Entry) -> dict[str, Any]:
    return {**_listed_keys(entry), "description": entry.description}


def _listed_keys(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "parameters": entry.parameters,
        "effect": entry.effect,
        "status": {hardware: entry.status(hardware) for hardware in ("gpu", "cpu")},
        "pairs": entry.pairs,
        "where": list(entry.where),
    }


@text_blocks.register(Catalog)
def _catalog_blocks(report: Catalog) -> Blocks:
    rows = [(each.name, ", ".join(each.pairs) or "-", each.effect) for each in report.entries]
    return [
        table("lll", rows, ("What-if", "validated on", "what it does")),
        text("foretrace transforms NAME shows one in full, with its parameters", ASIDE),
    ]


@text_blocks.register(Entry)
def _entry_blocks(entry: Entry) -> Blocks:
    pairs = [f"{name} by {max(by.values())} pairs" for name, by in entry.pairs.items()]
    lines = entry.description.splitlines() or [""]
    is_head = [set(line) == {"-"} for line in [*lines[1:], ""]]
    return [
        heading(f"{entry.name}({entry.parameters})"),
        *(
            heading(line) if head else text(line)
            for line, head in zip(lines, is_head, strict=True)
            if set(line) != {"-"}
        ),
        text(""),
        text(f"Validated: {', '.join(pairs) or 'by no measured pair'}"),
        *note_list("Only in these settings", entry.where),
    ]
