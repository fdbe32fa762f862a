"""What was done to a graph, and what its user must know of that: kept in its `JobState`.

In: a graph before and after a what-if. Out: the graph after, with the what-if written down, where
its costs came from, by how much the samples of a step grew, warnings and doubts.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from foretrace.graph.state import Applied, Doubt, JobState

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

MEASURED, RULE, NOTHING = "measured", "rule", "nothing"
MULTIPLY = ("faster_kernels", "faster_host", "faster_modules", "gradient_accumulation")
"""What-ifs whose effects multiply when they are applied again: that may be meant."""
SETTING = ("replace_kernel", "dataloader", "device", "cpu_cores")
"""What-ifs that say how things are afterwards: once or twice is the same."""


def applied(graph: Graph) -> tuple[Applied, ...]:
    """Return every what-if applied to *graph*, in order."""
    return graph.state.applied


def add_note(graph: Graph, *notes: str) -> Graph:
    """Return *graph* with *notes* (assumptions) added, each once."""
    new = tuple(dict.fromkeys(note for note in notes if note not in graph.notes))
    return replace(graph, notes=graph.notes + new) if new else graph


def add_warning(graph: Graph, *texts: str) -> Graph:
    """Return *graph* with *texts*, of which every prediction from it warns, each once."""
    return graph.with_state(warnings=tuple(dict.fromkeys((*warnings(graph), *texts))))


def add_doubt(graph: Graph, *doubts: Doubt) -> Graph:
    """Return *graph* with *doubts* about answers from it, each once."""
    return graph.with_state(doubts=tuple(dict.fromkeys((*graph.state.doubts, *doubts))))


def warnings(graph: Graph) -> tuple[str, ...]:
    """Return what what-ifs warned of."""
    return graph.state.warnings


def grow_samples(graph: Graph, ratio: float) -> Graph:
    """Return *graph*, a step of which now has *ratio* times as many samples."""
    return graph.with_state(samples_ratio=samples(graph) * ratio)


def samples(graph: Graph) -> float:
    """Return how many times as many samples a step has as in the recording."""
    return 1.0 if graph.state.samples_ratio is None else graph.state.samples_ratio


def samples_ratio(before: Graph, after: Graph) -> float:
    """Return how many times as many samples a step of *after* has as one of *before*.

    Where no what-if said so, the batch sizes do.
    """
    was, now = before.meta.batch_size, after.meta.batch_size
    if after.state.samples_ratio is before.state.samples_ratio and was and now:
        return now / was
    return samples(after) / samples(before)


def mark_measured(graph: Graph) -> Graph:
    """Return *graph*, in which a calibration told what something costs."""
    return graph.with_state(calibration_uses=graph.state.calibration_uses + 1)


def add_applied(before: Graph, after: Graph, name: str, text: str) -> Graph:
    """Return *after*, what the what-if *text* made of *before*, with that written down.

    One that changed nothing, or that was applied already, is said.
    """
    is_told = after.state.calibration_uses != before.state.calibration_uses
    source = NOTHING if _is_same(before, after) else MEASURED if is_told else RULE
    earlier = applied(before)
    if source == NOTHING:
        after = add_warning(after, f"{text} changes nothing in this job")
    elif name in MULTIPLY and any(each.name == name for each in earlier):
        again = f"{name} is applied more than once: its effects multiply"
        after = replace(after, notes=tuple(dict.fromkeys((*after.notes, again))))
    elif name not in SETTING and any(each.text == text for each in earlier):
        twice = f"{text} was applied already: its effect counts twice; leave one out"
        after = add_doubt(after, Doubt("applied-twice", twice))
    return after.with_state(applied=(*earlier, Applied(name, text, source)))


def _is_same(before: Graph, after: Graph) -> bool:
    """Tell whether *after* is the very job *before*: its tables and rules are the same objects."""
    parts = ("tasks", "edges", "lanes", "operators", "platform", "rules")
    state = {each.name for each in fields(JobState)} - {"warnings", "doubts", "calibration_uses"}
    return all(getattr(after, part) is getattr(before, part) for part in parts) and all(
        getattr(after.state, name) is getattr(before.state, name) for name in state
    )
