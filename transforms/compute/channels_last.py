"""Channels last: images lie in memory as convolutions want them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.graph.state import Doubt
from foretrace.transforms.compute import layout_on_device
from foretrace.transforms.compute.layout_factors import layout_factors
from foretrace.transforms.costs.kernels import Kernels
from foretrace.transforms.costs.operators import task_operator_classes
from foretrace.transforms.edit.columns import is_in, matches
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_doubt, add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import first_per_step, has_device, require
from foretrace.transforms.measured.apply import apply_measured

if TYPE_CHECKING:
    import numpy as np

    from foretrace.graph.model import Graph

PHASES = ("forward", "backward")
CHANGES_LAYOUT = r"(?i)nchw_?(to_?|2)_?nhwc|nhwc_?(to_?|2)_?nchw|batched_transpose|tensorTransform"
"""Kernels by which cuDNN and MIOpen turn images around for one convolution and back."""


def channels_last(graph: Graph) -> Graph:
    """Keep images and their gradients in NHWC layout from the first layer to the last.

    Parameters
    ----------
    graph
        The job, with images in NCHW.

    Notes
    -----
    Assumes: on an accelerator, the kernels that turn images around for a convolution go away,
    but for one per step (the input); the convolutions themselves, which ran in NHWC between
    them, stay. Where a what-if before moved convolutions to tensor cores, those changes are in
    their time and go, too. 16-bit batch norms read once where they read twice. fp32 convolutions
    without tensor cores get slower, but for 1x1 ones that run as products. Ask for it after
    `amp`, `tf32` and `device`, which decide this. On a CPU, a calibration's timings; without
    one, what layers timed alone took: convolutions 0.85 of their time, depthwise ones 0.4, batch
    norm 0.58, pooling and upsampling 0.2, group norm 1.35.
    Unknown: other kernels that the library picks; without a calibration the gain of a CPU job,
    which does not follow from flops and bytes, is doubted.
    Source: kernel names; passes over memory; published timings of NHWC convolutions in fp32;
    calibration; layers timed alone on one CPU.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> names = ["nchwToNhwcKernel", "conv2d_tensorop", "nhwcToNchwKernel"]
    >>> graph = literal([(name, "kernel", 0, 50, "forward") for name in names])
    >>> channels_last(graph).tasks.name.tolist()
    ['nchwToNhwcKernel', 'conv2d_tensorop']
    """
    if not has_device(graph):
        return _on_host(graph)
    return _on_device(graph)


def _on_device(graph: Graph) -> Graph:
    tasks = graph.tasks
    kernels = is_in(tasks["kind"], "kernel") & is_in(tasks["phase"], *PHASES)
    require(
        kernels & (Kernels(graph).classes == "conv"), graph, "convolution in forward or backward"
    )
    turning = kernels & matches(tasks["name"], CHANGES_LAYOUT)
    factors = layout_on_device.layout_factors(graph, kernels & ~turning)
    changes = factors != 1
    if not (turning.any() or changes.any()):
        raise TransformError(
            "nothing to change: no kernel turns images around between NCHW and NHWC; these "
            "convolutions run in the layout that they are given"
        )
    gone = turning.copy()
    gone[first_per_step(graph, turning)] = False
    text = (
        f"channels_last: {gone.sum() / graph.steps:.0f} layout changes per step go away, "
        f"{_share(graph, gone):.1%} of the kernels"
    )
    if (slower := changes & (factors > 1)).any():
        text += (
            f"; {slower.sum() / graph.steps:.0f} convolutions per step run without tensor cores, "
            "for which NHWC is the slower layout (amp, where it is to come, goes before)"
        )
    changed = scale(graph, changes, factors, cost="prior")
    return add_note(remove(changed, gone), text)


def _share(graph: Graph, where: np.ndarray) -> float:
    work = graph.tasks["work_ns"].to_numpy()
    return float(work[where].sum() / work[is_in(graph.tasks["kind"], "kernel")].sum())


def _on_host(graph: Graph) -> Graph:
    kinds = task_operator_classes(graph)
    trains = is_in(graph.tasks["phase"], *PHASES)
    require(trains & (kinds == "conv"), graph, "convolution in forward or backward")
    measured = apply_measured(graph, channels_last)
    if measured is not None:
        return measured
    text = (
        "without a calibration the gain of a CPU job is a guess, from layers timed alone on one "
        "machine: it is neither in flops nor in bytes; calibrate"
    )
    changed = scale(graph, trains, layout_factors(graph), cost="prior")
    changed = add_note(changed, "channels_last: each kind of layer changes as it did elsewhere")
    return add_doubt(changed, Doubt("layout-guessed", f"channels_last: {text}"))
