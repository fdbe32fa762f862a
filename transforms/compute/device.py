"""Another device: every kernel, copy and gap as a GPU of the table would have them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.tracer.trace import Device
from foretrace.transforms.costs.devices import Hardware, device_named, hardware
from foretrace.transforms.costs.kernels import Kernels
from foretrace.transforms.costs.roofline import DeviceChange, uses_tf32
from foretrace.transforms.edit.columns import Mask, is_in, matches
from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.primitives import scale, scale_lags
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.host.faster_host import faster_host

if TYPE_CHECKING:
    from foretrace.graph.model import Graph, Platform

QUEUE_DEPTH = 1_023
"""Launches that may be outstanding on NVIDIA devices; on AMD more were seen (design 4.3)."""

PINNED = r"HtoD \(Pinned|-> Pinned\)"
ON_DEVICE = r"DtoD"
HOST_STAYS = "device: host times stay as recorded; host_speedup=... says how fast the new host is"
COPY_FLOOR_NS = 2_000
"""Shortest copy over a link (all public traces: 1 to 2 us)."""


def device(graph: Graph, *, name: str, recorded: str = "", host_speedup: float = 1.0) -> Graph:
    """Run the job on another GPU: *name* of the table, in a host *host_speedup* times as fast.

    Parameters
    ----------
    graph
        The job, recorded on a GPU.
    name
        The new device, such as "H100", "A100-PCIE-80GB" or "MI300X".
    recorded
        The device it ran on, where the recording does not name it.
    host_speedup
        1 keeps the recorded host.

    Notes
    -----
    Assumes: each kernel keeps its class and precision, except that convolutions run in TF32 on
    an NVIDIA device that has it (PyTorch's default; `tf32` moves the products too) and what the
    device lacks runs in the next wider type. A kernel's latency floor goes with the devices'
    floors; above it, products go with the peak and the share of it that large ones reach,
    few blocks filling few multiprocessors; attention with its library's share; everything else
    with the achieved bandwidth. Gaps, launch latency, pinned and device copies go with the
    devices' figures.
    Unknown: which kernels the new device's library picks, clocks under load, and data that a
    larger cache keeps. Collectives and pageable copies keep their time.
    Source: devices.toml, each figure with its own; wave scaling after Habitat (ATC'21).

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> relu = "vectorized_elementwise_kernel<4, relu<float>>"
    >>> graph = literal([(relu, "kernel", 0, 100_000, "forward")])
    >>> device(graph, name="A100", recorded="V100").tasks.work_ns.tolist()
    [61980]
    """
    positive("host_speedup", host_speedup)
    if not has_device(graph):
        raise TransformError("nothing to change: no device task in this graph; record on a GPU")
    old, new = _recorded_hardware(graph, recorded), device_named(name)
    for given, which in ((name, new), (recorded, old)):
        if which.vendor == "cpu":
            raise TransformError(f"{given!r} is a CPU; give a GPU")
    if recorded and (there := hardware(graph)) and there.name != old.name:
        raise TransformError(
            f"recorded={recorded!r} contradicts this job, which runs on {there.name}; leave it out"
        )
    if old.name != new.name:
        graph = _move_work(graph, old, new)
        graph = add_note(graph, *[HOST_STAYS] * (host_speedup == 1))
    if old.name != new.name or recorded:
        graph = _name_devices(graph, new)
    return graph if host_speedup == 1 else faster_host(graph, speedup=host_speedup)


def _recorded_hardware(graph: Graph, name: str) -> Hardware:
    recorded = device_named(name) if name else hardware(graph)
    if recorded is None:
        names = ", ".join(sorted({d.name for d in graph.meta.devices if d.name})) or "no name"
        raise TransformError(
            f"the recorded device ({names}) is not in the table; give recorded= as in "
            'device(name="H100", recorded="V100-SXM2")'
        )
    return recorded


def _move_work(graph: Graph, old: Hardware, new: Hardware) -> Graph:
    kernels = Kernels(graph)
    moved = DeviceChange(kernels, old, new)
    notes = _notes(graph, moved)
    names, work = graph.tasks["name"], graph.tasks["work_ns"].to_numpy()
    factor = moved.times() / np.maximum(work, 1)
    unknown = kernels.classes == "other"
    inside = is_in(graph.tasks["kind"], "memset")
    inside |= is_in(graph.tasks["kind"], "memcpy") & matches(names, ON_DEVICE)
    over = is_in(graph.tasks["kind"], "memcpy") & matches(names, PINNED)
    link = _link_factor(work, old.figures["pcie_gbps"] / new.figures["pcie_gbps"])
    rules = (
        (kernels.where & moved.is_backed, factor, "roofline"),
        (kernels.where & ~moved.is_backed & ~unknown, factor, "table"),
        (kernels.where & unknown, factor, "prior"),
        (inside, factor, "table"),
        (over, link, "table"),
    )
    for where, factors, source in rules:
        graph = scale(graph, where, factors, cost=source)
    for kind, figure in (("stream", "kernel_gap_us"), ("launch", "launch_latency_us")):
        share = new.figures[figure] / old.figures[figure]
        graph = scale_lags(graph, is_in(graph.edges["kind"], kind), share)
    if uses_tf32(new) and not uses_tf32(old):
        graph = graph.with_state(tf32=tuple(sorted({*graph.state.tf32, "conv"})))
    fill = graph.tasks["fill"] * (old.figures["sm_count"] / new.figures["sm_count"])
    graph = replace(graph, tasks=graph.tasks.assign(fill=fill))
    return add_note(replace(graph, platform=_platform(graph.platform, old, new)), *notes)


def _link_factor(work: np.ndarray, ratio: float) -> np.ndarray:
    """Return the factor on copies over the link to the host, of which a floor stays."""
    stays = np.minimum(work, COPY_FLOOR_NS)
    return np.asarray((stays + (work - stays) * ratio) / np.maximum(work, 1))


def _name_devices(graph: Graph, new: Hardware) -> Graph:
    """Return *graph* as a recording on *new* would name its devices."""
    used = np.unique(graph.lanes["device"].to_numpy())
    old = graph.meta.devices or tuple(Device(int(index), "") for index in used if index >= 0)
    count, memory = int(new.figures["sm_count"]), int(new.figures["memory_gb"] * 1e9)
    devices = tuple(Device(each.index, new.name, count, memory) for each in old)
    return replace(graph, meta=replace(graph.meta, devices=devices))


def _platform(platform: Platform, old: Hardware, new: Hardware) -> Platform:
    gap = new.figures["kernel_gap_us"] / old.figures["kernel_gap_us"]
    latency = new.figures["launch_latency_us"] / old.figures["launch_latency_us"]
    depth = platform.queue_depth if old.vendor == new.vendor else QUEUE_DEPTH
    return replace(
        platform,
        gap_ns={kinds: round(ns * gap) for kinds, ns in platform.gap_ns.items()},
        launch_latency_ns=round(platform.launch_latency_ns * latency),
        queue_depth=None if new.vendor == "amd" else depth,
    )


def _notes(graph: Graph, moved: DeviceChange) -> list[str]:
    """Return what was assumed, with the share of kernel time that rests on class ratios alone."""
    kernels, work = moved.kernels, graph.tasks["work_ns"].to_numpy()
    total = max(1, int(work[kernels.where].sum()))

    def share(where: Mask) -> float:
        return float(work[kernels.where & where].sum()) / total

    changed = moved.sources != moved.targets
    to_tf32 = (kernels.classes == "conv") & (moved.targets == "tf32") & changed
    lacking = changed & (kernels.precisions != moved.targets) & ~to_tf32
    lacking &= np.isin(kernels.classes, ["gemm", "conv", "attention"])
    notes = [f"device: kernels as on {moved.new.name}, by class, from those on {moved.old.name}"]
    if unshaped := share(moved.is_matrix & ~moved.is_backed):
        notes.append(
            f"device: {unshaped:.0%} of kernel time is in products whose shapes are unknown, "
            "taken to be bound by arithmetic"
        )
    if to_tf32.any():
        notes.append("device: convolutions run in TF32 there, as by default in PyTorch")
    if lacking.any():
        wide = ", ".join(sorted(set(moved.targets[lacking].tolist())))
        notes.append(f"device: {share(lacking):.0%} of kernel time runs in a wider type: {wide}")
    if is_in(graph.tasks["kind"], "collective", "p2p").any():
        notes.append("device: collectives keep their recorded time")
    return notes
