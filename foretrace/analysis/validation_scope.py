"""Where a job of several workers runs, in words by which measured pairs are told apart.

In: the graphs before and after what-ifs. Out: a text such as "one worker before, A100, slingshot".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from foretrace.transforms.cluster.model import OUTSIDE
from foretrace.transforms.cluster.placement import outside_gb_per_s, workers_placed
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.distributed.common.transfers import communicates
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement

BITS = 8


def describe_setting(before: Graph, after: Graph) -> str:
    """Return what was recorded, on which device, and what joins the workers afterwards.

    Errors of what-ifs about several workers are known where all of these are alike. Of a network
    that is not the recorded one, the kind is its links' name, or the decade of its rate over TCP.
    """
    workers = "several workers" if communicates(before).any() else "one worker"
    device = hardware(after)
    name = device.name.split("-")[0] if device else "another device"
    alone = f"{workers} before, {name if has_device(before) else 'CPU'}"
    placed = workers_placed(after)
    return alone if placed is None else f"{alone}, {_describe_network(placed)}"


def is_within(where: str, tested: list[str]) -> bool:
    """Tell whether the setting *where* is one of *tested*, or has the recorded network of one.

    >>> is_within("one worker before, CPU", ["one worker before, CPU, TCP up to 1 Gbit/s"])
    True
    >>> is_within("one worker before, H100", ["one worker before, CPU, TCP up to 1 Gbit/s"])
    False
    """
    return any(each == where or each.startswith(f"{where}, ") for each in tested)


def _describe_network(placed: Placement) -> str:
    cluster = placed.cluster
    gbit = BITS * outside_gb_per_s(cluster)
    if cluster.transport == "tcp" and gbit:
        return f"TCP up to {10 ** math.ceil(math.log10(gbit) - 1e-9):g} Gbit/s"
    each = len(cluster.devices)
    if len({device // each for device in placed.devices}) == 1:
        return "one machine"
    links = {data["link"].name for *_, data in cluster.machine.edges(OUTSIDE, data=True)}
    return ", ".join(sorted(links))
