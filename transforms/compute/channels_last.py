"""Channels last: images lie in memory as convolutions want them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.kernel_names import classes
from foretrace.transforms.costs.operators import task_operator_classes
from foretrace.transforms.edit.columns import is_in, matches
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import first_per_step, has_device, require
from foretrace.transforms.measured.apply import apply_measured

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

PHASES = ("forward", "backward")
CHANGES_LAYOUT = r"(?i)nchw_?(to_?|2)_?nhwc|nhwc_?(to_?|2)_?nchw|batched_transpose|tensorTransform"
"""Kernels by which cuDNN and MIOpen turn images around for one convolution and back."""

ON_CPU = 0.8
"""Factor on convolutions, norms and pooling of a CPU job (prior: whole steps of four networks
took 11 to 22 % less, by cpu-findings; that is neither in flops nor in bytes)."""

SPATIAL = ("conv", "norm", "reduce")


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
    them, stay. On a CPU, a calibration's timings; without one, convolutions, norms and pooling
    take 0.8 of their time.
    Unknown: other kernels that the library picks; without a calibration the gain of a CPU job,
    which does not follow from flops and bytes.
    Source: kernel names; calibration; measured CPU pairs for the prior.

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
    tasks = graph.tasks
    kernels = is_in(tasks["kind"], "kernel") & is_in(tasks["phase"], *PHASES)
    convolutions = kernels & (classes(tasks["name"]) == "conv")
    require(convolutions, graph, "convolution in forward or backward")
    turning = kernels & matches(tasks["name"], CHANGES_LAYOUT)
    if not turning.any():
        raise TransformError(
            "nothing to change: no kernel turns images around between NCHW and NHWC; these "
            "convolutions run in the layout that they are given"
        )
    gone = turning.copy()
    gone[first_per_step(graph, turning)] = False
    count, share = gone.sum() / graph.steps, _share(graph, gone)
    text = f"channels_last: {count:.0f} layout changes per step go away, {share:.1%} of the kernels"
    return add_note(remove(graph, gone), text)


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
    return add_note(
        scale(graph, trains & np.isin(kinds, SPATIAL), ON_CPU, cost="prior"),
        "channels_last: a guess without calibration; what a CPU gains is neither in flops nor in "
        "bytes",
    )
