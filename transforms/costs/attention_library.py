"""Which library fused attention runs on after a change, asked from the recording.

In: a graph. Out: the library, and whether the recording tells it: by kernels that it shows in 16
bits, by the device, or by the version of torch. Else today's is taken, and what another one would
reach is the range of the answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.devices import Hardware, attention_share, hardware
from foretrace.transforms.costs.kernel_names import classes, precisions
from foretrace.transforms.costs.kernels import attention_kinds

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

TODAY, EARLIER = "flash2", "flash1"
FLASH2_SINCE = (2, 2)
"""PyTorch 2.2 (January 2024) is the first with FlashAttention-2 in its release notes."""
VERSION = re.compile(r"torch (\d+)\.(\d+)")
NARROW = ("fp16", "bf16", "fp8")


class Library(NamedTuple):
    """The library of attention kernels after a change, and how it is known ("" if it is not)."""

    name: str
    known_by: str


def find_library(graph: Graph) -> Library:
    """Return the library that 16-bit attention runs on in the software of *graph*.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> find_library(literal([("pytorch_fmha::fmha_fwd_loop<bf16>", "kernel", 0, 9, "forward")]))
    Library(name='flash1', known_by='a kernel of the recording')
    >>> find_library(literal([("sgemm", "kernel", 0, 9, "forward")]))
    Library(name='flash2', known_by='')
    """
    names = graph.tasks["name"]
    seen = (classes(names) == "attention") & np.isin(precisions(names), NARROW)
    if seen.any():
        kinds, counts = np.unique(attention_kinds(graph)[seen], return_counts=True)
        return Library(str(kinds[counts.argmax()]), "a kernel of the recording")
    device = hardware(graph)
    if device is not None and attention_share(TODAY, device) is None:
        return Library("mem_efficient", f"{device.name}, which has no flash-attention")
    version = VERSION.search(graph.meta.framework or "")
    if version is None:
        return Library(TODAY, "")
    is_today = tuple(map(int, version.groups())) >= FLASH2_SINCE
    return Library(TODAY if is_today else EARLIER, version.group())


def assumed_share(library: str, device: Hardware) -> float | None:
    """Return the share of the peak of a *library* that nothing tells, the others' as its range."""
    shares = [attention_share(name, device) for name in (EARLIER, TODAY)]
    known = [share for share in shares if share is not None]
    value = attention_share(library, device)
    if value is None or not known:
        return value
    ends = min(value, *known), max(value, *known)
    why = f"that of {library}, today's; which library the job will run is not recorded"
    return Assumed(f"{device.name}: share that attention will reach", value, *ends, why).now()
