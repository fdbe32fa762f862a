"""Text and JSON of the list of what-ifs, and of one in full; importing this registers them."""

from __future__ import annotations

from typing import Any

from foretrace.analysis.evidence.evidence import UNVALIDATED
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
        "evidence": [
            {
                **each.place._asdict(),
                "source": each.source,
                "untuned": each.untuned,
                "tuned": each.tuned,
            }
            for each in entry.tested
        ],
    }


@text_blocks.register(Catalog)
def _catalog_blocks(report: Catalog) -> Blocks:
    rows = [(each.name, _best(each) or "-", each.effect) for each in report.entries]
    return [
        table("lll", rows, ("What-if", "at best", "what it does")),
        text("foretrace transforms NAME shows one in full, with its parameters", ASIDE),
    ]


@text_blocks.register(Entry)
def _entry_blocks(entry: Entry) -> Blocks:
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
        text(f"Status, at best: {_best(entry) or UNVALIDATED}"),
        *note_list("Tested by", [f"{each} (costs: {each.source})" for each in entry.tested]),
    ]


def _best(entry: Entry) -> str:
    """Return the best status on each kind of hardware that has one, "" without any."""
    found = {on: entry.status(on) for on in ("cpu", "gpu")}
    return ", ".join(f"{on} {status}" for on, status in found.items() if status != UNVALIDATED)
