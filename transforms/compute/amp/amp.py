"""Automatic mixed precision: matrix products in 16 bits, casts between, a scaler for fp16."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.graph.state import ActivationChange, Autocast
from foretrace.transforms.compute.amp.cpu import amp_on_host
from foretrace.transforms.compute.amp.cuda import amp_on_device
from foretrace.transforms.costs.attention_library import Library, find_library
from foretrace.transforms.costs.peak_memory import change_activations
from foretrace.transforms.edit.parameters import choice
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.measured.apply import apply_measured

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

DTYPES = ("bf16", "fp16")
ATTENTION = ("flash1", "flash2", "flash3", "mem_efficient")
HALVED = ("conv", "gemm", "attention", "pool", "batch_norm")
"""Operators that keep 16-bit inputs for backward; layer norms and losses do not."""


def amp(graph: Graph, *, dtype: str = "bf16", attention: str | None = None) -> Graph:
    """Run matrix products and convolutions in 16 bits under autocast.

    Parameters
    ----------
    graph
        The job, in fp32 or TF32.
    dtype
        "bf16", or "fp16", which adds a gradient scaler: it unscales the gradients and waits for
        the device once per step to see whether they were finite.
    attention
        Kernels that fused fp32 attention becomes: those of the software after the change, one of
        "flash1", "flash2", "flash3" and "mem_efficient". Without it, what the recording tells:
        its 16-bit attention kernels, its device, its version of torch ("flash2" from 2.2 on).
        Where it tells nothing "flash2" is taken, and "flash1" lies in the interval.

    Notes
    -----
    Assumes: products gain the ratio of the device's peaks (TF32 to 16 bits: 2), half of it from
    fp32 SIMT kernels; half of the element-wise and reducing memory passes see 16-bit values;
    layer norms, losses, optimizer and layout changes stay. Weights are cast once per step and
    their gradients back; fp32 layer norms add three casts each. On a CPU products change by the
    probed ratio of the machine's bf16 and fp32 rates, and casts run at its copy bandwidth.
    With a calibration, every operator changes as it was timed in both forms.
    Unknown: which other kernels the library picks in 16 bits, and layouts changed for them.
    Source: vendor peaks, memory traffic; the attention shares name theirs in devices.toml.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("cutlass_80_tensorop_s1688gemm", "kernel", 0, 400_000, "forward")])
    >>> amp(graph).tasks[["cost", "work_ns"]].values.tolist()
    [['prior', 200000], ['prior', 2000]]
    """
    choice("dtype", dtype, DTYPES)
    library = find_library(graph) if attention is None else Library(attention, "the question")
    choice("attention", library.name, ATTENTION)
    if graph.state.autocast is not None:
        raise TransformError("nothing to change: amp was applied to this job already")
    changed = apply_measured(graph, partial(amp, dtype=dtype, attention=attention))
    if changed is None:
        rule = partial(amp_on_device, library=library) if has_device(graph) else amp_on_host
        changed = rule(graph, dtype=dtype)
    changed = changed.with_state(autocast=Autocast(dtype, library.name))
    text = f"amp: matrix products and convolutions run in {dtype}"
    return add_note(
        change_activations(changed, ActivationChange(HALVED, 0.5, gradients=True)), text
    )
