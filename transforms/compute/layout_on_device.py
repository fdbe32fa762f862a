"""What channels last does to the kernels of an accelerator: a factor per task.

cuDNN's tensor-core kernels want images in NHWC; in NCHW it turns them around for each convolution.
Without tensor cores (fp32 on Volta, Pascal) it has few NHWC kernels, and those are slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.kernel_names import precisions
from foretrace.transforms.costs.kernels import Kernels
from foretrace.transforms.costs.roofline import LAYOUT
from foretrace.transforms.edit.columns import Mask, is_in, matches

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.costs.devices import Hardware

NARROW = ("fp16", "bf16")
TENSOR_CORES = 7.0
"""Compute capability from which NVIDIA devices have tensor cores, for 16 bits first."""
BATCH_NORM = r"(?i)batch_?norm|(^|[\W_])bn_"
IS_NHWC = r"(?i)nhwc|channels_last"

NO_TENSOR_CORES = Assumed(
    "an NHWC convolution without tensor cores, in its NCHW time",
    *(1.64, 1.1, 2.4),
    "V100 in fp32: 1.64 (pytorch issue 44943); TITAN RTX in fp32, 3x3: 2.4 (PyTorch forum, 107586)",
    more_is_longer=True,
)
NORM = Assumed(
    "a 16-bit batch norm in NHWC, in its NCHW time",
    *(0.625, 0.5, 1.0),
    "passes over memory: cuDNN's persistent NHWC kernels read once (5 of 8); H100: half "
    "(cudnn-frontend issue 134)",
    more_is_longer=True,
)


def layout_factors(graph: Graph, trains: Mask) -> npt.NDArray[np.float64]:
    """Return the factor of each of the kernels *trains*; 1 where the layout is nothing.

    A 1x1 convolution that runs as a product is one in either layout.
    """
    kernels, device, names = Kernels(graph), hardware(graph), graph.tasks["name"]
    factors = np.ones(len(trains))
    if device is None or device.vendor != "nvidia":
        return factors
    narrow, nhwc = np.isin(kernels.precisions, NARROW), matches(names, IS_NHWC)
    convolutions = trains & kernels.turns_images & ~nhwc
    on_tensor_cores = _has_tensor_cores(kernels.precisions, device)
    renamed = convolutions & on_tensor_cores & (precisions(names) == "fp32")
    if renamed.any():  # moved there by a what-if, with the layout changes in their time
        factors[renamed] = 1 / (1 + LAYOUT.now())
    slower = convolutions & ~on_tensor_cores
    if slower.any():
        factors[slower] = NO_TENSOR_CORES.now()
    norms = trains & _has_tensor_cores(np.where(_sees_narrow(graph, narrow), "fp16", ""), device)
    norms &= matches(names, BATCH_NORM) & ~nhwc & is_in(graph.tasks["kind"], "kernel")
    if norms.any():
        factors[norms] = NORM.now()
    return factors


def _has_tensor_cores(kinds: npt.NDArray[np.str_], device: Hardware) -> Mask:
    """Return what runs on tensor cores on *device*, by its precision."""
    narrow = np.isin(kinds, NARROW) & (device.capability >= TENSOR_CORES)
    return narrow | (kinds == "tf32")


def _sees_narrow(graph: Graph, narrow: Mask) -> Mask:
    """Return the kernels that see 16-bit images: by name, or all of them under `amp`."""
    return narrow | (graph.state.autocast is not None)
