"""Without a synchronisation: the host no longer waits for the device at a given place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.edit.columns import is_in, matches, set_label
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import call_of, has_device, require, within_operator

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask


def remove_sync(
    graph: Graph, *, pattern: str = r"item|_local_scalar_dense|is_nonzero|Synchronize|DtoH"
) -> Graph:
    """Remove the waits whose call, operator or copy matches *pattern*.

    Parameters
    ----------
    graph
        The job.
    pattern
        Regular expression searched in the names of waiting calls, of the operators around them
        and of the copies they make. The default covers ``.item()`` and explicit synchronisation.

    Notes
    -----
    Assumes: nobody needs the value. A download goes away with its call; an upload stays and no
    longer blocks, as from pinned memory. Loader threads keep their waits.
    Unknown: memory held longer, and what the program did with the value.
    Source: the graph itself.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("cudaStreamSynchronize", "sync", 0, 5, None), ("step", "host", 0, 9, None),
    ...      ("k", "kernel", 1, 50, None)],
    ...     columns={"wait": ["stream", "none", "none"], "wait_lane": [1, -1, -1]},
    ... )
    >>> remove_sync(graph).tasks.name.tolist()
    ['step', 'k']
    """
    if not has_device(graph):
        raise TransformError(
            "nothing to change: this job runs on a CPU alone, so nothing is asynchronous and "
            "nobody waits for a device"
        )
    tasks = graph.tasks
    named = matches(tasks["name"], pattern) | within_operator(graph, pattern)
    named |= _calls_of(graph, named & is_in(tasks["kind"], *DEVICE_KINDS))
    trains = ~is_in(graph.lanes["role"], "loader")[tasks["lane"].to_numpy()]
    host = ~is_in(tasks["kind"], *DEVICE_KINDS)
    waits = host & trains & (~is_in(tasks["wait"], "none") | is_in(tasks["kind"], "sync"))
    where = named & waits
    require(where, graph, f"wait matching {pattern!r}", like=pattern, among=waits)
    uploads = where & _calls_of(graph, matches(tasks["name"], "HtoD"))
    gone = where & ~uploads
    call = call_of(graph)
    copies = (call >= 0) & gone[call]
    quiet = tasks.assign(wait=set_label(tasks["wait"], uploads, "none"))
    changed = remove(replace(graph, tasks=quiet), gone | copies)
    return add_note(changed, "remove_sync: nobody needs the values that the job waited for")


def _calls_of(graph: Graph, device: Mask) -> Mask:
    """Return the calls that launched the selected device tasks."""
    call = call_of(graph)[device]
    calls = np.zeros(len(graph.tasks), bool)
    calls[call[call >= 0]] = True
    return calls
