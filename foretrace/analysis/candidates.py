"""Which what-ifs are worth asking of any job, with the parameters that suit this one.

A table: name of the transform, and its parameters or a function that reads them off the graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.registry import TRANSFORMS
from foretrace.transforms.scenario import WhatIf

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

Parameters = Mapping[str, Any] | Callable[["Graph"], Mapping[str, Any]]


@dataclass(frozen=True)
class Candidate:
    """A what-if to try; ``saves`` says what it is for: time or memory.

    One that saves memory costs time: it is listed, and never combined with others for speed.
    """

    name: str
    parameters: Parameters = field(default_factory=dict)
    saves: str = "time"

    def what_if(self, graph: Graph) -> WhatIf:
        """Return the what-if with the parameters that suit *graph*."""
        given = self.parameters
        return WhatIf(self.name, TRANSFORMS[self.name], given(graph) if callable(given) else given)


def _amp_dtype(graph: Graph) -> dict[str, Any]:
    device = hardware(graph)
    return {"dtype": "fp16" if device is not None and device.peak("bf16") is None else "bf16"}


def _double_batch(graph: Graph) -> dict[str, Any]:
    recorded = graph.meta.batch_size
    return {"n": 2, "recorded": 1} if recorded is None else {"n": 2 * recorded}


def _more_workers(graph: Graph) -> dict[str, Any]:
    """Twice the recorded workers; four where there are none, on a CPU no more than cores.

    Where workers load and the recording does not count them, two for each.
    """
    recorded = (graph.meta.loader or {}).get("workers")
    if recorded:
        return {"workers": 2 * recorded}
    if is_in(graph.tasks["kind"], "load").any():
        return {"workers": 2, "recorded_workers": 1}
    cores = (graph.meta.machine or {}).get("cores")
    room = 4 if has_device(graph) or not cores else max(1, min(4, int(cores) - 1))
    return {"workers": room}


CANDIDATES = (
    Candidate("amp", _amp_dtype),
    Candidate("tf32"),
    Candidate("channels_last"),
    Candidate("flash_attention"),
    Candidate("reconstruct_batchnorm"),
    Candidate("compile"),
    Candidate("fused_optimizer", {"kind": "fused"}),
    Candidate("fused_optimizer", {"kind": "foreach"}),
    Candidate("overlap_h2d"),
    Candidate("remove_sync"),
    Candidate("dataloader", _more_workers),
    Candidate("cuda_graphs"),
    Candidate("batch_size", _double_batch),
    Candidate("gradient_accumulation", {"k": 2}, saves="memory"),
    Candidate("activation_checkpoint", saves="memory"),
    Candidate("vdnn", saves="memory"),
    Candidate("gist", saves="memory"),
)
"""In the order in which they are applied together."""

NEEDS_A_FIGURE = (
    "faster_kernels",
    "faster_host",
    "faster_modules",
    "remove_modules",
    "replace_kernel",
    "metaflow",
    "device",
    "cpu_cores",
    "ddp",
    "fsdp",
    "network",
    "p3",
    "parameter_server",
    "pipeline",
    "straggler",
    "tensor_parallel",
)
"""What-ifs about a number, a layer, a machine or a cluster that only the user can name."""


def list_candidates() -> Iterator[Candidate]:
    """Yield every candidate that is registered; new transforms without a must come last."""
    yield from (candidate for candidate in CANDIDATES if candidate.name in TRANSFORMS)
    listed = {candidate.name for candidate in CANDIDATES} | set(NEEDS_A_FIGURE)
    for name, function in TRANSFORMS.items():
        own = list(inspect.signature(function).parameters.values())[1:]
        if name not in listed and all(p.default is not inspect.Parameter.empty for p in own):
            yield Candidate(name)
