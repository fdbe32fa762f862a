"""A scenario in, the what-ifs that it is made of out: it is no surer than any of them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.transforms.scenario import parse_scenario

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import Scenario, WhatIf

MADE_OF = {"pipeline": ("batch_size",)}
"""What-ifs that apply another one inside: they err at least as much as it does."""


def list_parts(scenario: Scenario, graph: Graph) -> list[WhatIf]:
    """Return what *scenario*, asked of *graph*, is made of; nothing where that is only itself.

    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("a", "host", 0, 5, None)])
    >>> [str(each) for each in list_parts(parse_scenario(["amp(dtype='bf16')"]), graph)]
    []
    >>> asked = parse_scenario(["pipeline(stages=2, micro_batches=4, recorded=32)"])
    >>> [str(each) for each in list_parts(asked, graph)]
    ['batch_size(n=8, recorded=32)']
    """
    inside = [part for what_if in scenario for part in _inside(what_if, graph)]
    return [*(scenario if len(scenario) > 1 else ()), *inside]


def _inside(what_if: WhatIf, graph: Graph) -> Scenario | tuple[()]:
    """Return the what-ifs that *what_if* applies: of a pipeline, a micro-batch."""
    if what_if.name not in MADE_OF:
        return ()
    asked = what_if.parameters
    batch, count = asked.get("recorded") or graph.meta.batch_size, asked["micro_batches"]
    if not batch or count < 2 or batch % count:  # noqa: PLR2004 - a whole batch is no part
        return ()
    return parse_scenario([f"batch_size(n={batch // count}, recorded={batch})"])
