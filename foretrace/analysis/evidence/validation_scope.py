"""Where an answer holds, in words by which measured pairs are told apart: a `Place`.

In: the graphs before and after what-ifs, and their critical paths. Out: vendor and generation of
the hardware, what is compared, what sets the pace, the library of attention, and for several
workers a text such as "one worker before, A100, slingshot".
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.transforms.cluster.model import OUTSIDE
from foretrace.transforms.cluster.placement import outside_gb_per_s, workers_placed
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.kernel_names import classes
from foretrace.transforms.costs.kernels import attention_kinds
from foretrace.transforms.distributed.common.transfers import communicates
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement

STEP = "step"
HALF = 0.5
OF_HOST = (
    *("host", "launch", "sync", "load", "data gap"),
    *("thread gap", "fork gap", "join gap", "launch gap", "return gap"),
)
"""Causes on a critical path that only a faster host or loader would shorten."""
WITH_ATTENTION = ("amp", "device", "flash_attention", "tf32")
"""What-ifs whose answer depends on the library of the attention kernels."""
BITS = 8


class Place(NamedTuple):
    """What a measured pair and an answer must have in common for one to tell of the other.

    ``on`` is "gpu" or "cpu", ``hardware`` vendor and generation ("NVIDIA Ampere", of a move both;
    of a CPU its instructions), ``measure`` what is compared ("step", or a part of it), ``regime``
    what sets the pace on a GPU, ``attention`` the library of its kernels, "" without any.
    ``workers`` is the setting of several workers (`describe_setting`), "" of one alone.
    """

    on: str
    hardware: str
    measure: str = STEP
    regime: str = ""
    attention: str = ""
    workers: str = ""

    def tells_of(self, other: Place, what_if: str) -> bool:
        """Tell whether a pair of *what_if* measured here tells of an answer at the *other* place.

        >>> ampere = Place("gpu", "NVIDIA Ampere", regime="device-bound")
        >>> ampere.tells_of(ampere._replace(hardware="NVIDIA Blackwell"), "amp")
        False
        """
        alike = ("on", "hardware", "measure", "regime")
        return (
            all(getattr(self, field) == getattr(other, field) for field in alike)
            and (what_if not in WITH_ATTENTION or other.attention in ("", self.attention))
            and (not self.workers or is_within(other.workers, [self.workers]))
        )

    def __str__(self) -> str:
        """Return it in words, as outputs name it.

        >>> str(Place("gpu", "NVIDIA Hopper to AMD CDNA 3", "kernels"))
        'NVIDIA Hopper to AMD CDNA 3, time of its kernels only'
        """
        parts = [self.hardware, self.workers, PARTS.get(self.measure, ""), self.regime]
        if self.attention:
            parts.append(f"attention {self.attention}")
        return ", ".join(filter(None, parts))


PARTS = {"kernels": "time of its kernels only", "optimizer": "its optimizer phase only"}


def describe_place(
    before: Graph, after: Graph, paths: tuple[Mapping[str, float], Mapping[str, float]]
) -> Place:
    """Return where the answer for *after* holds; *paths* are ns by cause before and after."""
    alone = workers_placed(after) is None and not communicates(before).any()
    workers = "" if alone else describe_setting(before, after)
    if not has_device(before):
        return Place("cpu", describe_cpu(before), workers=workers)
    return Place(
        "gpu",
        describe_hardware(before, after),
        regime=describe_regime(*paths),
        attention=describe_attention(after),
        workers=workers,
    )


def describe_cpu(graph: Graph) -> str:
    """Return vendor and instructions of the recorded CPU: one with others is another generation.

    Told by whether it multiplies in 16 bits faster than in 32 (AVX-512 BF16, AMX, Arm's bf16).
    """
    machine = graph.meta.machine or {}
    if "has_bf16" not in machine:
        return "CPU of unknown instructions"
    vendor = re.split(r"[\s(]", str(machine.get("cpu") or "unnamed"))[0]
    return f"{vendor} CPU {'with' if machine['has_bf16'] else 'without'} 16-bit products"


def describe_hardware(before: Graph, after: Graph) -> str:
    """Return the GPU's generation, of a job that moves both.

    >>> from foretrace.graph.literal import literal
    >>> job = literal([("gemm", "kernel", 0, 9, "forward")])
    >>> describe_hardware(job, job)
    'a GPU that is not in the table'
    """
    old, new = (
        device.generation if device else "a GPU that is not in the table"
        for device in (hardware(before), hardware(after))
    )
    names = [getattr(hardware(graph), "name", "") for graph in (before, after)]
    return old if names[0] == names[1] else f"{old} to {new}"


def describe_regime(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Return what sets the pace of a job on a GPU, before and after a change.

    >>> describe_regime({"kernel": 3.0, "launch": 1.0}, {"kernel": 1.0, "launch": 3.0})
    'device-bound, then host-bound'
    """
    was, now = ("host-bound" if host_share(p) > HALF else "device-bound" for p in (before, after))
    return was if was == now else f"{was}, then {now}"


def host_share(path: Mapping[str, float]) -> float:
    """Return the share of a critical path that the host is the cause of.

    >>> host_share({"kernel": 3.0, "thread gap": 1.0})
    0.25
    """
    return sum(path.get(cause, 0.0) for cause in OF_HOST) / (sum(path.values()) or 1.0)


def describe_attention(graph: Graph) -> str:
    """Return the libraries that run the fused attention of *graph*, "" where it has none."""
    is_attention = is_in(graph.tasks["kind"], "kernel")
    is_attention &= classes(graph.tasks["name"]) == "attention"
    return " and ".join(np.unique(attention_kinds(graph)[is_attention]).tolist())


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
