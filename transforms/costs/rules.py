"""What changed work costs: measured before table before roofline before prior.

Every function returns a time or a factor together with the label that goes into the task's
``cost`` column. Constants say where they come from; none is fitted to a single pair unless its
line says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretrace.transforms.costs.devices import Hardware, attention_share
from foretrace.transforms.edit.columns import Mask, is_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

    Floats = npt.NDArray[np.float64]

STREAMING = 0.85
"""Share of the peak bandwidth that a streaming kernel reaches (STREAM on V100 and A100)."""

FLOOR_NS = 2_000
"""A kernel's shortest time where the recording shows none: launch, drain and one wave."""

HOST_FIXED_NS = 4_000
"""Dispatch of one operator on a CPU, whatever its size (prior)."""

HALVED = 2.0
"""16-bit values move half the bytes; also the ratio of the 16-bit peak to the TF32 peak."""

SIMT_SHARE = 0.5
"""Tensor cores reach about half of their peak where fp32 SIMT kernels reach nearly all of it."""

SIMT_PRIOR = 4.0
"""fp32 SIMT to 16-bit tensor cores on an unknown device (V100 and T4: 8 by peaks, times 0.5)."""

WINOGRAD = 2.25
"""Multiplications that the fp32 Winograd algorithm already saves and tensor cores do not."""

TOUCHED = 0.5
"""Share of element-wise and reducing memory passes that see 16-bit values under autocast."""


class Cost(NamedTuple):
    """A factor on the old cost, and where it came from."""

    factor: float
    source: str


def best(**candidates: float | None) -> Cost:
    """Return the first known of *measured*, *table*, *roofline*, *prior*.

    Examples
    --------
    >>> best(prior=2.0, measured=None, roofline=1.5)
    Cost(factor=1.5, source='roofline')
    """
    for source in ("measured", "table", "roofline", "prior"):
        value = candidates.get(source)
        if value is not None:
            return Cost(value, source)
    raise AssertionError("a cost needs at least a prior")


def matrix_speedup(
    precision: str, target: str, hardware: Hardware | None, *, uses_tf32: bool
) -> Cost:
    """Return how much faster a matrix product or convolution runs in 16 bits.

    A kernel that stays on SIMT cores although the job uses TF32 elsewhere is one the library
    could not move to tensor cores: it gains the halved bytes and no more.
    """
    peaks = _peak(hardware, target), _peak(hardware, precision)
    if precision == "tf32":
        return best(roofline=_ratio(*peaks), prior=HALVED)
    if uses_tf32:
        return best(prior=HALVED)
    ratio = _ratio(*peaks)
    shared = None if ratio is None else max(1.0, ratio * SIMT_SHARE)
    return best(roofline=shared, prior=SIMT_PRIOR)


def attention_speedup(
    kind: str, target: str, hardware: Hardware | None, share: float | None = None
) -> Cost:
    """Return how much faster fused fp32 attention runs as *kind* in 16 bits, at *share* if known.

    fp32 attention multiplies with three TF32 products where the device has TF32.
    """
    if hardware is None:
        return best(prior=SIMT_PRIOR)
    new = attention_share(kind, hardware) if share is None else share
    old = attention_share("fp32", hardware)
    if new is None:
        new = attention_share("mem_efficient", hardware)
    tf32 = hardware.peak("tf32")
    base = tf32 / 3 if tf32 else hardware.peak("fp32")
    peak = hardware.peak(target)
    if new is None or old is None or base is None or peak is None:
        return best(prior=SIMT_PRIOR)
    return best(table=max(1.0, peak * new / (base * old)))


def halve_part(share: float) -> float:
    """Return the factor on a memory-bound kernel when *share* of its bytes are halved.

    Examples
    --------
    >>> halve_part(0.5)
    0.75
    """
    return 1 - share / HALVED


def floor_ns(graph: Graph) -> int:
    """Return the shortest time a kernel takes in *graph*: the 5th percentile of its kernels."""
    work = graph.tasks["work_ns"].to_numpy()[is_in(graph.tasks["kind"], "kernel")]
    work = work[work > 0]
    return min(FLOOR_NS, int(np.quantile(work, 0.05))) if len(work) else FLOOR_NS


def shorten(work_ns: Floats, factor: Any, floor: int) -> Floats:
    """Return *work_ns* times *factor*; what is saved never takes a kernel below *floor*."""
    return np.maximum(work_ns * factor, np.minimum(work_ns, floor))


def streaming_ns(size: float, hardware: Hardware | None, floor: int) -> float | None:
    """Return the time to move *size* bytes through the device's memory; None if unknown."""
    if hardware is None or hardware.memory_gbps is None or not np.isfinite(size):
        return None
    return max(float(floor), size / (hardware.memory_gbps * STREAMING))


def subtract_floor(work_ns: npt.NDArray[Any], floor: int) -> Floats:
    """Return the part of kernel times that grows with their bytes.

    In quadrature: a kernel at the floor is all latency, a long one is all bytes.
    """
    return np.sqrt(np.maximum(work_ns.astype(np.float64) ** 2 - float(floor) ** 2, 0.0))


def machine_rate(graph: Graph, name: str) -> float | None:
    """Return a probed rate of the recording machine (``copy_gbps``, ``fp32_gflops``, …)."""
    value = (graph.meta.machine or {}).get(name)
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def model_streams(graph: Graph, classes: npt.NDArray[np.str_]) -> Mask:
    """Return the device tasks on streams that carry matrix products, not a loader's copies."""
    heavy = np.isin(classes, ["gemm", "conv", "attention"]) & is_in(graph.tasks["kind"], "kernel")
    lanes = np.unique(graph.tasks["lane"].to_numpy()[heavy])
    return np.isin(graph.tasks["lane"].to_numpy(), lanes)


def _peak(hardware: Hardware | None, precision: str) -> float | None:
    return None if hardware is None else hardware.peak(precision)


def _ratio(new: float | None, old: float | None) -> float | None:
    return None if new is None or old is None else new / old
