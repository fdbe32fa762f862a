"""A host that waits for each of its transfers, as FSDP, tensor parallel layers and pipelines do.

In: a graph, its cluster, transfers over gloo that are issued and waited for one after another. Out:
the time that each keeps the link busy, and how late the host returns from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.distributed.common.link_credit import credit_ns, spend_between

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.model import Cluster
    from foretrace.transforms.edit.columns import Rows

WAKE_EACH = Assumed(
    "time to wake a host that waits for every collective, over the cluster file's",
    *(0.5, 0.25, 1.0),
    "a collective ends anywhere in a tick of the scheduler: half of one on average; "
    "FSDP runs took 1.5 to 4.5 of 4 ms per collective beyond link, copies and Python",
    ("network-epyc-1: gpt and wide under FSDP", "drawn-100 to drawn-102 under FSDP"),
    more_is_longer=True,
)


WAKE_RECEIVER = Assumed(
    "time to wake a host that waits for a message, over the cluster file's",
    *(0.25, 0.0, 1.0),
    "messages took 0.1 to 0.4 ms or about 4, one tick; with 1 ms pipelines came out even",
    ("network-epyc-1: gpt-8 as a pipeline",),
    more_is_longer=True,
)


def wake_ns(cluster: Cluster, share: Assumed = WAKE_EACH) -> int:
    """Return the time from the end of a transfer to the return of the host, in ns."""
    wake_us = cluster.host.wake_us
    return round(1_000 * wake_us * share.now()) if wake_us else 0


def lend(graph: Graph, cluster: Cluster, hosts: Rows, work_ns: Rows) -> Rows:
    """Return *work_ns* of transfers beside *hosts* less what the link of *cluster* lends.

    While the host computes from one to the next, as recorded, a shaped link saves up.
    """
    lent_ns = credit_ns(cluster)
    if not lent_ns or not len(hosts):
        return work_ns
    start = graph.tasks["start_ns"].to_numpy()[hosts].astype(np.float64)
    order = np.argsort(start, kind="stable")
    left = work_ns.astype(np.float64)
    pauses = np.diff(start[order], prepend=-np.inf)
    left[order] = spend_between(left[order], pauses, lent_ns)
    return np.rint(left).astype(np.int64)
