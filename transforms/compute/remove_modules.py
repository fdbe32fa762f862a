"""Without some modules: a network from which parts are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.operators import ACCUMULATE, parse_shapes
from foretrace.transforms.edit.columns import Mask, is_in
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import modules_matching

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def remove_modules(graph: Graph, *, pattern: str) -> Graph:
    """Take the modules that match *pattern* out of the network, forward, backward and update.

    Parameters
    ----------
    graph
        The job, recorded with its modules.
    pattern
        Regular expression for whole parts of a module's path: "blocks.3" finds blocks.3 and all
        inside it.

    Notes
    -----
    Assumes: what remains computes what it did, on inputs of the same shapes. The modules' host
    time goes with them. The optimizer's work shrinks by their share of the parameters' bytes.
    Unknown: whether the network still learns.
    Source: the recording itself.

    Examples
    --------
    >>> import pandas as pd
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("mm", "host", 0, 50, "forward")] * 2,
    ...                 columns={"module": pd.Categorical(["blocks.0", "head"])})
    >>> remove_modules(graph, pattern="blocks").tasks.module.tolist()
    ['head']
    """
    inside, modules = modules_matching(graph, pattern)
    share = parameter_share(graph, modules)
    updates = is_in(graph.tasks["phase"], "optimizer") & (inside < 0)
    text = f"remove_modules: {len(modules)} modules matching {pattern!r} are gone"
    if share is None:
        text += "; their share of the optimizer's work is unknown and stays"
    elif share:
        graph = scale(graph, updates, 1 - share, cost="roofline")
        text += f"; the optimizer has {share:.0%} less to update"
    return add_note(remove(graph, inside >= 0, gaps="drop"), text)


def parameter_share(graph: Graph, modules: list[str]) -> float | None:
    """Return the share of the parameters' bytes that lie in *modules*; None when unknown.

    It is read off the gradients that one backward pass accumulates.
    """
    operators = graph.operators
    gradients = operators[is_in(operators["name"], ACCUMULATE) & operators["shapes"].notna()]
    shapes = [parse_shapes(text) for text in gradients["shapes"]]
    sizes = np.array([np.prod(shape[0]) if shape else 0 for shape in shapes], np.float64)
    if not sizes.sum():
        return None
    return float(sizes[_within(gradients["module"].tolist(), modules)].sum() / sizes.sum())


def _within(paths: list[object], modules: list[str]) -> Mask:
    return np.array([any(f"{path}.".startswith(f"{m}.") for m in modules) for path in paths], bool)
