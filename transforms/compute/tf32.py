"""TF32: fp32 products and convolutions on tensor cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.devices import devices, hardware
from foretrace.transforms.costs.kernel_names import MATRIX
from foretrace.transforms.costs.kernels import Kernels
from foretrace.transforms.costs.roofline import DeviceChange, uses_tf32
from foretrace.transforms.costs.rules import model_streams
from foretrace.transforms.edit.columns import is_in, matches
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

SIDE_KERNELS = r"(?i)splitKreduce|reduce_1Block|gemv|dot_kernel|wgrad_alg0_engine"
"""Kernels beside a product, or products with vectors, that have no tensor-core form."""


def tf32(graph: Graph) -> Graph:
    """Run fp32 products and convolutions in TF32 on tensor cores.

    Notes
    -----
    Assumes: where some products (or convolutions) run in TF32 already it is on, and the library
    could not move the others: they stay. Kernels that were written for fp32 cores reach half of
    what large products reach of the tensor cores' peak (Winograd kernels give up the
    multiplications they save). Products gain no more than the memory allows, by their shapes or
    their grids. Convolutions in NCHW, but for 1x1 ones, pay 0.3 on top for layout changes, more
    where the memory is slow. No kernel gets slower: then the library keeps the old one.
    Unknown: which kernels the library picks, and which products stay for their alignment.
    Source: vendor peaks in devices.toml; half the share as in `amp`.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from foretrace.tracer.trace import Device
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("ampere_sgemm_128x64_tn", "kernel", 0, 1_005_600, "forward")])
    >>> meta = replace(graph.meta, devices=(Device(0, "NVIDIA A100-SXM4-80GB"),))
    >>> tf32(replace(graph, meta=meta)).tasks.work_ns.tolist()
    [252693]
    """
    device = hardware(graph) if has_device(graph) else None
    if device is None:
        raise TransformError(
            "tf32 needs a job recorded on a GPU of the table that names its device"
        )
    if not uses_tf32(device):
        have = ", ".join(row.name for _, row in devices() if uses_tf32(row))
        raise TransformError(f"{device.name} does not use TF32; of the table, {have} do")
    kernels = Kernels(graph)
    moved = DeviceChange(kernels, device, device, to_tf32=MATRIX)
    where = kernels.where & (moved.sources == "fp32") & (moved.targets == "tf32")
    where &= model_streams(graph, kernels.classes) & ~matches(graph.tasks["name"], SIDE_KERNELS)
    where &= ~is_in(graph.tasks["phase"], "optimizer", "load")
    settled = [name for name in MATRIX if _is_on(kernels, name)]
    where &= ~np.isin(kernels.classes, settled)
    if not where.any():
        raise TransformError(
            "nothing to change: no product or convolution in fp32 but those that the library left "
            "there although others of their class run in TF32"
        )
    factor = np.minimum(1.0, moved.times() / np.maximum(graph.tasks["work_ns"].to_numpy(), 1))
    graph = scale(graph, where & moved.is_backed, factor, cost="roofline")
    graph = scale(graph, where & ~moved.is_backed, factor, cost="table")
    classes = {*graph.state.tf32, *np.unique(kernels.classes[where]).tolist()}
    graph = graph.with_state(tf32=tuple(sorted(classes)))
    return add_note(graph, f"tf32: {int(where.sum())} fp32 kernels run in TF32 on {device.name}")


def _is_on(kernels: Kernels, name: str) -> bool:
    """Tell whether kernels of a class run in TF32 already: matmul and cuDNN have their switch."""
    in_tf32 = (kernels.classes == name) & (kernels.precisions == "tf32")
    return bool((kernels.where & in_tf32).any())
