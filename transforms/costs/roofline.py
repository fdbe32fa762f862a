"""What the kernels of a job cost on another device: a floor of latency plus a roofline by class.

A kernel's time is split in two. Below the class's floor it is latency: launch, drain, one pass
through a loop; that part goes with the floors of the two devices. What is above it is bound by
matrix units or by memory, and goes with the rates of those. Products whose shapes are known are
bound by whichever the roofline says on each device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.devices import (
    Hardware,
    attention_share,
    device_named,
    floor_us,
)
from foretrace.transforms.costs.kernel_names import MATRIX
from foretrace.transforms.costs.kernels import Kernels, attention_kinds
from foretrace.transforms.costs.rules import SIMT_SHARE, WINOGRAD
from foretrace.transforms.edit.columns import Mask, is_in, matches

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from foretrace.graph.model import Graph

    Floats = npt.NDArray[np.float64]

TENSOR = ("nvfp4", "mxfp4", "fp4", "mxfp8", "fp8", "bf16", "fp16", "tf32")
SIMT_REACHED = 0.85
"""Share of the fp32 peak that large products reach without tensor cores (cuBLAS on V100)."""

LAYOUT = Assumed(
    "layout changes around TF32 convolutions, in their own time",
    *(0.30, 0.22, 0.70),
    "NCHW convolutions on TF32 tensor cores, but for 1x1 ones: 0.22 in pair P7's U-Net, 0.30 in a "
    "public VGG-13 (0.43 on H100), 0.70 in pair P4's ResNet-50",
    ("P7", "P4 V100", "P4 A100"),
    more_is_longer=True,
)
LAYOUT_SEEN_ON = "A100-SXM4-40GB"
"""The device of both pairs: elsewhere tensor cores and memory are not in that proportion."""

_WIDER = ("fp8", "bf16", "fp16", "fp32")
FALLBACKS = {
    **dict.fromkeys(("nvfp4", "mxfp4"), ("fp4", *_WIDER)),
    "fp4": _WIDER,
    "mxfp8": _WIDER,
    "fp8": _WIDER[1:],
    "bf16": ("fp32",),
    "tf32": ("fp32",),
}
"""Where the arithmetic goes on a device without it (bf16 is emulated in fp32). Blocks with scales
of their own run at the rate of their elements."""


@dataclass(frozen=True)
class DeviceChange:
    """The kernels of *old* on *new*: `ratio` of their bound part, and which of it shapes back.

    Of the classes *to_tf32* fp32 kernels run in TF32; by default convolutions, where only the
    new device has it.
    """

    kernels: Kernels
    old: Hardware
    new: Hardware
    to_tf32: tuple[str, ...] | None = None

    @cached_property
    def sources(self) -> npt.NDArray[np.str_]:
        """Precision of the arithmetic on the old device (a job may have been moved there)."""
        return _replace_unsupported(self.kernels.precisions, self.old)

    @cached_property
    def targets(self) -> npt.NDArray[np.str_]:
        """Precision of the arithmetic on the new device."""
        recorded = self.kernels.precisions
        moving = self.to_tf32
        if moving is None:
            moving = ("conv",) if uses_tf32(self.new) and not uses_tf32(self.old) else ()
        gains = np.isin(self.kernels.classes, moving) & (recorded == "fp32")
        return _replace_unsupported(np.where(gains, "tf32", recorded), self.new)

    @cached_property
    def is_backed(self) -> Mask:
        """Products whose flops and bytes their shapes tell."""
        flops, _ = self.kernels.work
        return self.is_matrix & np.isfinite(flops)

    @property
    def is_matrix(self) -> Mask:
        """Products and convolutions."""
        return np.isin(self.kernels.classes, MATRIX)

    def times(self) -> Floats:
        """Return what every task takes on the new device, in ns, were it a kernel."""
        work = self.kernels.graph.tasks["work_ns"].to_numpy().astype(np.float64)
        old, new = (self._floors(device) for device in (self.old, self.new))
        return new * np.minimum(1.0, work / old) + np.maximum(0.0, work - old) * self.ratio

    @cached_property
    def ratio(self) -> Floats:
        """New over old time of the part above the floor."""
        streaming = bandwidth(self.old) / bandwidth(self.new)
        each = np.full(len(self.kernels.classes), streaming)
        if self.is_matrix.any():
            each = np.where(self.is_matrix, self._matrix_ratio(), each)
        attention = self.kernels.classes == "attention"
        return np.where(attention, self._attention_ratio(), each) if attention.any() else each

    def _floors(self, device: Hardware) -> Floats:
        return _each(self.kernels.classes, lambda name: 1e3 * floor_us(name, device))

    def _matrix_ratio(self) -> Floats:
        flops, size = self.kernels.work
        before, after = self._rates()
        old = np.fmax(flops / before, size / bandwidth(self.old))
        new = np.fmax(flops / after, size / bandwidth(self.new))
        names = self.kernels.graph.tasks["name"]
        to_tensor = (self.sources == "fp32") & (self.targets != "fp32")
        ratio = np.where(np.isfinite(flops), new / old, self._no_faster(before / after))
        ratio *= np.where(to_tensor & matches(names, "(?i)winograd"), WINOGRAD, 1.0)
        converts = to_tensor & self.kernels.turns_images & (self.targets == "tf32")
        return (
            ratio * np.where(converts, 1 + layout_share(self.new), 1.0) if converts.any() else ratio
        )

    def _no_faster(self, ratio: Floats) -> Floats:
        """Return *ratio*, raised where a product would take less than moving its data does.

        Of one in fp32 the recorded time tells how many operations it is.
        """
        work = self.kernels.graph.tasks["work_ns"].to_numpy()
        bound = np.maximum(work - self._floors(self.old), 1.0)
        is_fp32 = self.sources == "fp32"
        rate = matrix_rate(self.old, self.sources, np.zeros(len(work), bool))
        moved = self.kernels.moved(np.where(is_fp32, bound * rate, 0.0))
        moving = np.minimum(moved / bandwidth(self.old), bound)
        return np.maximum(ratio, moving / bound * (bandwidth(self.old) / bandwidth(self.new)))

    def _rates(self) -> tuple[Floats, Floats]:
        """Return operations per ns before and after, of every task were it a product.

        A product of few blocks fills few multiprocessors on either device, as long as the
        library launches the same kernel; another vendor's launches another one.
        """
        crosses = np.isin(self.sources, TENSOR) != np.isin(self.targets, TENSOR)
        before = matrix_rate(self.old, self.sources, crosses)
        after = matrix_rate(self.new, self.targets, crosses)
        blocks = self.kernels.graph.tasks["blocks"].to_numpy()
        keeps = (blocks > 0) & ~crosses & (self.old.vendor == self.new.vendor)
        fills = [np.minimum(1.0, blocks / d.figures["sm_count"]) for d in (self.old, self.new)]
        return before * np.where(keeps, fills[0], 1.0), after * np.where(keeps, fills[1], 1.0)

    def _attention_ratio(self) -> Floats:
        kinds = attention_kinds(self.kernels.graph)
        keys = np.char.add(np.char.add(kinds, " "), self.sources)
        before = _each(keys, lambda key: attention_rate(self.old, *key.split()))
        keys = np.char.add(np.char.add(kinds, " "), self.targets)
        return before / _each(keys, lambda key: attention_rate(self.new, *key.split()))


def layout_share(device: Hardware) -> float:
    """Return what layout changes take around TF32 convolutions on *device*, in their own time.

    Convolutions go with tensor cores, layout changes with the memory.
    """
    seen = device_named(LAYOUT_SEEN_ON)
    faster = device.figures["tf32_tflops"] / seen.figures["tf32_tflops"]
    return LAYOUT.now() * faster * bandwidth(seen) / bandwidth(device)


def uses_tf32(device: Hardware) -> bool:
    """Tell whether convolutions run in TF32 by default: NVIDIA's library does, AMD's does not."""
    return device.vendor == "nvidia" and device.peak("tf32") is not None


def _replace_unsupported(
    precisions: npt.NDArray[np.str_], device: Hardware
) -> npt.NDArray[np.str_]:
    """Return *precisions*, those that *device* lacks replaced by the next wider it has."""
    for precision in TENSOR:
        if not _has(device, precision):
            to = next((p for p in FALLBACKS.get(precision, ()) if _has(device, p)), "fp32")
            precisions = np.where(precisions == precision, to, precisions)
    return precisions


def _has(device: Hardware, precision: str) -> bool:
    return uses_tf32(device) if precision == "tf32" else device.peak(precision) is not None


def _each(keys: npt.NDArray[np.str_], value: Callable[[str], float]) -> Floats:
    """Return *value* of each key, asked once per distinct key."""
    names, place = np.unique(keys, return_inverse=True)
    return np.array([value(str(name)) for name in names])[place]


def bandwidth(device: Hardware) -> float:
    """Return what large element-wise kernels move, in bytes per ns."""
    return device.figures["memory_gbps"] * device.figure("streaming_share")


def matrix_rate(device: Hardware, precisions: npt.NDArray[np.str_], crosses: Mask) -> Floats:
    """Return operations per ns of large products; *crosses*: they move to or from tensor cores."""
    peaks = _each(precisions, lambda name: _matrix_peak(device, name))
    tensor = device.figure("matrix_share") * np.where(crosses, SIMT_SHARE, 1.0)
    return 1e3 * peaks * np.where(precisions == "fp32", SIMT_REACHED, tensor)


def _matrix_peak(device: Hardware, precision: str) -> float:
    vector = device.figures["fp32_tflops"]
    if precision == "fp32":
        return device.figures.get("fp32_matrix_tflops", vector)
    return device.peak(precision) or vector


def attention_rate(device: Hardware, kind: str, precision: str) -> float:
    """Return operations per ns of fused attention; fp32 runs on three TF32 products if any."""
    share = attention_share("fp32" if precision in ("fp32", "tf32") else kind, device)
    if share is None:
        share = attention_share("mem_efficient", device) or SIMT_SHARE
    tf32 = device.peak("tf32") if uses_tf32(device) else None
    peak = tf32 / 3 if precision in ("fp32", "tf32") and tf32 else _matrix_peak(device, precision)
    return 1e3 * peak * share


def kernel_time_ns(graph: Graph) -> float:
    """Return the device time of all kernels of one step, collectives and copies left out.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> kernel_time_ns(literal([("a", "kernel", 0, 10, None), ("b", "memcpy", 0, 20, None)]))
    10.0
    """
    work = graph.tasks["work_ns"].to_numpy()
    return float(work[is_in(graph.tasks["kind"], "kernel")].sum()) / graph.steps
