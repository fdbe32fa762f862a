"""What-ifs: functions from graph to graph, one file each, and the list of them.

`TRANSFORMS` is the only registry; the command line, the docs and the contract test read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.transforms.activation_checkpoint import activation_checkpoint
from foretrace.transforms.amp import amp
from foretrace.transforms.batch_size import batch_size
from foretrace.transforms.blueconnect import blueconnect
from foretrace.transforms.channels_last import channels_last
from foretrace.transforms.compile import compile  # noqa: A004 - what users call it
from foretrace.transforms.cpu_cores import cpu_cores
from foretrace.transforms.cuda_graphs import cuda_graphs
from foretrace.transforms.dataloader import dataloader
from foretrace.transforms.ddp import ddp
from foretrace.transforms.device import device
from foretrace.transforms.dgc import dgc
from foretrace.transforms.faster_host import faster_host
from foretrace.transforms.faster_kernels import faster_kernels
from foretrace.transforms.faster_modules import faster_modules
from foretrace.transforms.flash_attention import flash_attention
from foretrace.transforms.fsdp import fsdp
from foretrace.transforms.fused_optimizer import fused_optimizer
from foretrace.transforms.gist import gist
from foretrace.transforms.gradient_accumulation import gradient_accumulation
from foretrace.transforms.metaflow import metaflow
from foretrace.transforms.network import network
from foretrace.transforms.overlap_h2d import overlap_h2d
from foretrace.transforms.p3 import p3
from foretrace.transforms.paper import paper
from foretrace.transforms.parameter_server import parameter_server
from foretrace.transforms.pipeline import pipeline
from foretrace.transforms.placement import placement
from foretrace.transforms.powersgd import powersgd
from foretrace.transforms.reconstruct_batchnorm import reconstruct_batchnorm
from foretrace.transforms.remove_modules import remove_modules
from foretrace.transforms.remove_sync import remove_sync
from foretrace.transforms.replace_kernel import replace_kernel
from foretrace.transforms.scenario import (
    Scenario,
    WhatIf,
    apply,
    describe,
    describe_scenario,
    load_scenario,
    names,
    parse_scenario,
)
from foretrace.transforms.straggler import remove_stragglers, straggler
from foretrace.transforms.tensor_parallel import tensor_parallel
from foretrace.transforms.tf32 import tf32
from foretrace.transforms.vdnn import vdnn

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.graph.model import Graph

TRANSFORMS: dict[str, Callable[..., Graph]] = {
    function.__name__: function
    for function in (
        faster_kernels,
        faster_host,
        amp,
        fused_optimizer,
        remove_sync,
        dataloader,
        batch_size,
        gradient_accumulation,
        cpu_cores,
        overlap_h2d,
        channels_last,
        compile,
        device,
        tf32,
        flash_attention,
        cuda_graphs,
        activation_checkpoint,
        remove_modules,
        faster_modules,
        replace_kernel,
        reconstruct_batchnorm,
        metaflow,
        vdnn,
        gist,
        ddp,
        network,
        placement,
        fsdp,
        parameter_server,
        p3,
        blueconnect,
        dgc,
        powersgd,
        pipeline,
        tensor_parallel,
        straggler,
        remove_stragglers,
    )
}
"""Every what-if by name; its keyword-only arguments are its parameters."""

__all__ = [
    "TRANSFORMS",
    "Scenario",
    "WhatIf",
    "apply",
    "describe",
    "describe_scenario",
    "load_scenario",
    "names",
    "paper",
    "parse_scenario",
]
