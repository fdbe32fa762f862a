"""What a shaped link lends after a pause: a token bucket.

In: transfers in the order in which a link takes them. Out: the time that each keeps the link busy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.cluster.model import OUTSIDE
from foretrace.transforms.cluster.placement import outside_gb_per_s

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.transforms.cluster.model import Cluster


def spend_credit(
    work_ns: npt.NDArray[np.float64], ready_ns: npt.NDArray[np.float64], credit_ns: float
) -> npt.NDArray[np.float64]:
    """Return what is left of transfers on a link that lends *credit_ns* of its time after a pause.

    A token bucket: while idle, the link saves up to its burst; so many bytes then pass at once.
    Transfers run one after another from *ready_ns* on; before the first the link has been idle.

    Examples
    --------
    >>> spend_credit(np.array([9.0, 9.0, 9.0]), np.array([0.0, 1.0, 30.0]), 4.0).tolist()
    [5.0, 9.0, 5.0]
    """
    left = np.empty(len(work_ns))
    virtual = free = -np.inf
    for i, (work, ready) in enumerate(zip(work_ns, ready_ns, strict=True)):
        virtual = max(virtual, ready - credit_ns) + work
        begin = max(free, ready)
        free = max(begin, virtual)
        left[i] = free - begin
    return left


def spend_between(
    work_ns: npt.NDArray[np.float64], pause_ns: npt.NDArray[np.float64], credit_ns: float
) -> npt.NDArray[np.float64]:
    """Return the same where the sender waits for each transfer: the pause before each is known.

    >>> spend_between(np.array([9.0, 9.0, 3.0]), np.array([99.0, 1.0, 99.0]), 4.0).tolist()
    [5.0, 8.0, 0.0]
    """
    left = np.empty(len(work_ns))
    saved = credit_ns
    for i, (work, pause) in enumerate(zip(work_ns.tolist(), pause_ns.tolist(), strict=True)):
        saved = min(credit_ns, saved + max(pause, 0.0))
        left[i] = max(work - saved, 0.0)
        saved = max(saved - work, 0.0)
    return left


def credit_ns(cluster: Cluster) -> float:
    """Return the time that a machine's links lend after a pause, that of the bytes let pass."""
    edges = cluster.machine.edges(OUTSIDE, data=True) if OUTSIDE in cluster.machine else ()
    burst = float(sum(data["link"].burst_bytes * data["count"] for *_, data in edges))
    return burst / outside_gb_per_s(cluster) if burst else 0.0
