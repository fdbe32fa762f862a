"""How well a job uses its devices: a graph in, `Utilisation` out.

Conventions: model FLOPs are what forward and backward of the model need, as torch's FlopCounter
counts them, without what is computed again; MFU is their rate over the device's dense peak in the
precision that most of the products' time runs in (PaLM, appendix B), HFU counts what is computed
again as well. Bytes are those of inputs and outputs, each moved once. What the recording does not
tell is None, and ``missing`` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.kernel_names import MATRIX
from foretrace.transforms.costs.kernels import Kernels
from foretrace.transforms.costs.model_flops import Products, count_products
from foretrace.transforms.costs.moved_bytes import moved_bytes
from foretrace.transforms.edit.columns import Mask, is_in
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.costs.devices import Hardware

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

PRODUCTS = (*MATRIX, "attention")
ENOUGH = 0.9
"""Share of the products' time whose shapes must be known before an MFU is given."""


@dataclass(frozen=True)
class ClassRate:
    """What the kernels of a class reach: ``ns`` of a step, of which ``counted`` is known.

    ``tflops`` and ``gbps`` are means over the counted time, None where shapes do not tell; the
    peaks are the device's.
    """

    name: str
    ns: float
    counted: float
    tflops: float | None
    peak_tflops: float | None
    gbps: float | None
    peak_gbps: float | None


@dataclass(frozen=True)
class Utilisation:
    """How well the devices are used, per step and device.

    ``busy`` is the share of a step in which a device works, ``sm_idle`` the share of that work
    during which multiprocessors have no block, ``exposed_ns`` the communication beside which
    nothing is computed. ``counted`` is the share of the products' time that ``model_flops`` is of.
    """

    busy: float
    sm_idle: float | None
    communication_ns: float
    exposed_ns: float
    model_flops: float | None
    again_flops: float
    counted: float
    precision: str | None
    peak_tflops: float | None
    step_ns: float
    rates: tuple[ClassRate, ...]
    missing: tuple[str, ...]

    @property
    def mfu(self) -> float | None:
        """Model FLOPs over what the device could do in a step."""
        return self._share(self.model_flops)

    @property
    def hfu(self) -> float | None:
        """The same with what is computed again."""
        return self._share(
            None if self.model_flops is None else self.model_flops + self.again_flops
        )

    @property
    def tflops(self) -> float | None:
        """Model TFLOP/s of a device."""
        return None if self.model_flops is None else self.model_flops / self.step_ns / 1e3

    def _share(self, flops: float | None) -> float | None:
        if flops is None or self.peak_tflops is None:
            return None
        return flops / self.step_ns / 1e3 / self.peak_tflops


def utilise(graph: Graph, step_ns: float) -> Utilisation | None:
    """Return how well the devices of *graph* are used in steps of *step_ns*; None without any."""
    if not has_device(graph) or not step_ns > 0:
        return None
    kernels, products, device = Kernels(graph), count_products(graph), hardware(graph)
    communicates = is_in(graph.tasks["kind"], "collective", "p2p")
    communicates |= is_in(graph.tasks["kind"], "kernel") & (kernels.classes == "collective")
    works = is_in(graph.tasks["kind"], *DEVICE_KINDS)
    devices = _devices(graph, works)
    parts = [_times(graph, works & mine, communicates) for mine in devices]
    busy, communication, exposed = (sum(part) / len(parts) for part in zip(*parts, strict=True))
    table = _table(graph, kernels, products)
    per_step = graph.steps * len(devices)
    counted, precision = _counted(table), _precision(table)
    model, again = (
        float(np.nansum(products.flops[which])) / per_step
        for which in (~products.again, products.again)
    )
    peak = device.peak(precision) if device and precision else None
    missing = _missing(graph, device, counted, peak, precision)
    return Utilisation(
        busy=min(busy / graph.steps / graph.measured_step_ns, 1.0),
        sm_idle=_sm_idle(graph, kernels, device),
        communication_ns=communication / graph.steps,
        exposed_ns=exposed / graph.steps,
        model_flops=model if counted >= ENOUGH else None,
        again_flops=again,
        counted=counted,
        precision=precision,
        peak_tflops=peak,
        step_ns=step_ns,
        rates=_rates(table, per_step, device),
        missing=missing,
    )


def covered_ns(start: Ints, end: Ints) -> int:
    """Return the time in which at least one interval is open.

    >>> covered_ns(np.array([0, 5, 20]), np.array([10, 12, 30]))
    22
    """
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    fresh = np.maximum(start, np.append(start[:1], reach[:-1]))
    return int(np.maximum(reach - fresh, 0).sum())


def _devices(graph: Graph, works: Mask) -> list[Mask]:
    """Return the tasks of each device of each rank."""
    lane = graph.tasks["lane"].to_numpy()
    rank, device = (graph.lanes[c].to_numpy().astype(np.int64)[lane] for c in ("rank", "device"))
    pairs = np.unique(np.stack([rank[works], device[works]]), axis=1).T
    return [(rank == one) & (device == other) for one, other in pairs.tolist()]


def _times(graph: Graph, works: Mask, communicates: Mask) -> tuple[float, float, float]:
    """Return how long a device works, communicates, and communicates without anything else."""
    start = graph.tasks["start_ns"].to_numpy()
    end = start + graph.tasks["duration_ns"].to_numpy()
    all_, transfers, computes = (
        covered_ns(start[which], end[which])
        for which in (works, works & communicates, works & ~communicates)
    )
    return float(all_), float(transfers), float(all_ - computes)


def _sm_idle(graph: Graph, kernels: Kernels, device: Hardware | None) -> float | None:
    """Return the share of the kernels' time during which multiprocessors have no block.

    The blocks of a kernel take equally long, and its last wave is spread over all multiprocessors.
    """
    counts = [d.sm_count for d in graph.meta.devices if d.sm_count]
    count = counts[0] if counts else (device.figures.get("sm_count") if device else None)
    tasks = graph.tasks
    blocks, fill = tasks["blocks"].to_numpy(), tasks["fill"].to_numpy()
    known = kernels.where & (blocks > 0)
    time = tasks["duration_ns"].to_numpy()
    total = time[kernels.where].sum()
    if not count or not total or time[known].sum() < ENOUGH * total:
        return None
    blocks, time, waves = blocks[known], time[known], np.nan_to_num(fill[known], nan=1.0)
    slots = blocks / np.maximum(waves, 1e-9)
    whole = np.where(waves > 1, np.ceil(waves) - 1, 0.0)
    last = np.where(waves > 1, blocks - whole * slots, blocks)
    active = (whole + np.minimum(1.0, last / count)) / (whole + 1)
    return float(1 - (active * time).sum() / time.sum())


def _table(graph: Graph, kernels: Kernels, products: Products) -> pd.DataFrame:
    """Return a row per operator and class of kernel: time, and FLOPs and bytes where known.

    The operator of a kernel is the outermost product around it, else the innermost with shapes;
    what it does counts for its products' class, else for that which most of its time is of.
    """
    rows = np.flatnonzero(kernels.where)
    operator = graph.tasks["operator"].to_numpy().astype(np.int64)[rows]
    operator = _work_of(graph, operator, products.owner)
    table = pd.DataFrame(
        {
            "operator": operator,
            "kind": kernels.classes[rows],
            "precision": kernels.precisions[rows],
            "ns": graph.tasks["duration_ns"].to_numpy()[rows].astype(np.float64),
        }
    )
    table = table.groupby(["operator", "kind", "precision"], as_index=False, sort=True)["ns"].sum()
    table["product"] = table["kind"].isin(PRODUCTS)
    table = table.sort_values(
        ["operator", "product", "ns"], ascending=[True, False, False], kind="stable"
    )
    at = table["operator"].to_numpy()
    first = (at >= 0) & np.append(True, at[1:] != at[:-1])[: len(at)]
    is_product = np.append(products.owner == np.arange(len(products.owner)), False)[at]
    flops = np.where(is_product, np.append(products.flops, np.nan)[at], 0.0)
    size = np.append(moved_bytes(graph, products), np.nan)[at]
    has_work = np.where(table["product"], is_product & (flops > 0), size > 0) & (at >= 0)
    return table.assign(
        flops=np.where(first, np.nan_to_num(flops), 0.0),
        bytes=np.where(first, np.nan_to_num(size), 0.0),
        known=has_work,
        sized=size > 0,
    )


def _work_of(graph: Graph, operator: Ints, owner: Ints) -> Ints:
    """Return the operator whose work each kernel does: a product's, else one that has shapes."""
    if not len(graph.operators):
        return operator
    parent = graph.operators["parent"].to_numpy().astype(np.int64)
    shaped = graph.operators["shapes"].notna().to_numpy()
    own = np.where(operator >= 0, owner[operator], -1)
    found = operator.copy()
    while (on := (found >= 0) & ~shaped[found]).any():
        found[on] = parent[found[on]]
    return np.where(own >= 0, own, found)


def _counted(table: pd.DataFrame) -> float:
    """Return the share of the products' time whose operations are known."""
    time = table["ns"].to_numpy() * table["product"].to_numpy()
    total = time.sum()
    return float(time[table["known"].to_numpy(bool)].sum() / total) if total else 0.0


def _precision(table: pd.DataFrame) -> str | None:
    """Return the precision in which most of the products' time runs."""
    products = table[table["product"]]
    if not len(products):
        return None
    return str(products.groupby("precision")["ns"].sum().idxmax())


def _rates(table: pd.DataFrame, per_step: int, device: Hardware | None) -> tuple[ClassRate, ...]:
    """Return what each class of kernels reaches, longest first."""
    rates = []
    for name, mine in table.groupby("kind", sort=True):
        total, known = mine["ns"].sum(), mine["known"].to_numpy(bool)
        precision = _precision(mine) if name in PRODUCTS else None
        flops, size = mine["flops"].sum(), mine["bytes"].sum()
        time = mine["ns"].to_numpy()
        moving = time[known & mine["sized"].to_numpy(bool)].sum()
        rates.append(
            ClassRate(
                name=str(name),
                ns=float(total / per_step),
                counted=float(time[known].sum() / total) if total else 0.0,
                tflops=float(flops / time[known].sum() / 1e3) if flops else None,
                peak_tflops=device.peak(precision) if device and precision else None,
                gbps=float(size / moving) if size and moving else None,
                peak_gbps=device.memory_gbps if device else None,
            )
        )
    return tuple(sorted(rates, key=lambda rate: -rate.ns))


def _missing(
    graph: Graph, device: Hardware | None, counted: float, peak: float | None, precision: str | None
) -> tuple[str, ...]:
    """Say in a line what MFU and rates lack."""
    has_shapes = len(graph.operators) and bool(graph.operators["shapes"].notna().any())
    if precision is None:
        return ("MFU: there is no product among the kernels",)
    if not has_shapes:
        return ("MFU and achieved rates: no operator shapes; record with record_shapes=True",)
    if counted < ENOUGH:
        return (f"MFU: shapes tell the operations of {counted:.0%} of the products' time",)
    if device is None:
        names = ", ".join(dict.fromkeys(d.name for d in graph.meta.devices if d.name))
        return (f"MFU: no peak is known of {names or 'the device, which is not named'}",)
    return () if peak else (f"MFU: no peak of {device.name} in {precision} is known",)
