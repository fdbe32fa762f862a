"""What a device can do at most: peaks and latencies from `devices.toml`, every figure sourced.

A recording names its devices; `hardware` finds the row. A CPU's figures are probed on the machine.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from foretrace.errors import TransformError
from foretrace.transforms.costs.assumed import Assumed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foretrace.graph.model import Graph

FIGURES = (
    "fp32_tflops",
    "fp32_matrix_tflops",
    "tf32_tflops",
    "fp16_tflops",
    "bf16_tflops",
    "fp8_tflops",
    "fp4_tflops",
    "memory_gbps",
    "memory_gb",
    "l2_mb",
    "sm_count",
    "clock_mhz",
    "pcie_gbps",
    "link_gbps",
    "matrix_share",
    "streaming_share",
    "kernel_floor_us",
    "kernel_gap_us",
    "launch_latency_us",
    "overlap_share",
)
"""Peaks (dense) of vector and matrix units, memory, links in one direction, what large kernels
reach of the peaks, the times that small ones cannot go below, and the speed that kernels keep while
the collectives library transfers."""


class Figures(dict[str, float]):
    """Figures of a device by name; one that is asked for and not public is refused."""

    def __init__(self, device: str, known: Mapping[str, float]) -> None:
        super().__init__(known)
        self._device = device

    def __missing__(self, name: str) -> float:
        """Refuse to guess.

        Raises
        ------
        TransformError
            Always.
        """
        raise TransformError(
            f"no public figure tells the {name} of {self._device}, and this change needs it; "
            "choose another device"
        )


@dataclass(frozen=True)
class Hardware:
    """One device: figures by name (see `FIGURES`, dense peaks), and the source of each.

    ``assumed`` holds the figures that no publication gives, with their ranges; ``generation`` is
    vendor and architecture, such as "NVIDIA Ampere".
    """

    name: str
    capability: float
    vendor: str = "nvidia"
    figures: dict[str, float] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    assumed: dict[str, Assumed] = field(default_factory=dict)
    generation: str = ""

    def peak(self, precision: str) -> float | None:
        """Return the peak in TFLOP/s at *precision*; None where the device lacks it."""
        return self.figures.get(f"{precision}_tflops")

    def figure(self, name: str) -> float:
        """Return a figure to reckon with: one end of its range where it is read otherwise."""
        return self.assumed[name].now() if name in self.assumed else self.figures[name]

    @property
    def memory_gbps(self) -> float | None:
        """Peak memory bandwidth in GB/s."""
        return self.figures.get("memory_gbps")


@cache
def devices() -> tuple[tuple[re.Pattern[str], Hardware], ...]:
    """Return every device of the table with the pattern its name is recognised by."""
    table = _table()
    return tuple(
        (re.compile(row["pattern"]), _hardware(row, table["sources"])) for row in table["device"]
    )


def find_device(name: str) -> Hardware | None:
    """Return the device that a recording calls *name*; None when it is not in the table.

    Examples
    --------
    >>> find_device("NVIDIA A100-SXM4-80GB").peak("bf16")
    312.0
    >>> find_device("Tesla V100-DGXS-32GB").name
    'V100-DGXS'
    """
    return next((hardware for pattern, hardware in devices() if pattern.search(name)), None)


def device_named(name: str) -> Hardware:
    """Return the device *name*, spelled as in the table or as recorded.

    Raises
    ------
    TransformError
        The table does not have it; the text lists what it has.
    """
    device = find_device(name)
    if device is None:
        names = ", ".join(hardware.name for _, hardware in devices())
        raise TransformError(f"device {name!r} is not in the table; it has {names}")
    return device


def hardware(graph: Graph) -> Hardware | None:
    """Return the device *graph* ran on; None when it is unnamed or not in the table."""
    used = set(graph.lanes["device"].to_numpy().tolist())
    named = [device for device in graph.meta.devices if device.name]
    ours = [device for device in named if device.index in used] or named
    return find_device(ours[0].name) if ours else None


def attention_share(name: str, hardware: Hardware) -> float | None:
    """Return the share of the peak that attention kernels *name* reach; None if they need more."""
    rows = [
        row
        for row in _table()["attention"]
        if row["name"] == name
        and row["since"] <= hardware.capability
        and row.get("vendor", hardware.vendor) == hardware.vendor
    ]
    if not rows:
        return None
    share = rows[-1]["share"]
    if "range" not in share:
        return float(share["value"])
    return _assume(_name_share(rows[-1]), share).now()


def floor_us(kernel_class: str, hardware: Hardware) -> float:
    """Return the shortest time of a kernel of this class on *hardware*, in microseconds."""
    times = [
        row["times"]
        for row in _table()["floor"]
        if row["vendor"] == hardware.vendor and kernel_class in row["classes"]
    ]
    return hardware.figures["kernel_floor_us"] * float(times[0] if times else 1.0)


def _hardware(row: dict[str, Any], sources: dict[str, str]) -> Hardware:
    given = {name: row[name] for name in FIGURES if name in row}
    told = {name: {**figure, "source": sources[figure["source"]]} for name, figure in given.items()}
    return Hardware(
        name=row["name"],
        capability=float(row["capability"]),
        vendor=row.get("vendor", "nvidia"),
        figures=Figures(
            row["name"], {name: float(figure["value"]) for name, figure in given.items()}
        ),
        sources={name: figure["source"] for name, figure in told.items()},
        assumed={
            name: _assume(f"{row['name']}: {name}", figure)
            for name, figure in told.items()
            if "range" in figure
        },
        generation=_generation(row.get("vendor", "nvidia"), float(row["capability"])),
    )


def _assume(name: str, figure: dict[str, Any]) -> Assumed:
    tuned_on = tuple(figure.get("tuned_on", ()))
    least, most = figure["range"]
    return Assumed(name, figure["value"], least, most, figure["source"], tuned_on)


def _name_share(row: dict[str, Any]) -> str:
    of = f" on {row['vendor']}" if "vendor" in row else ""
    return f"share of the peak that {row['name']} attention reaches{of}"


def _generation(vendor: str, capability: float) -> str:
    names = [
        row["name"]
        for row in _table()["generation"]
        if row["vendor"] == vendor and row["since"] <= capability
    ]
    return names[-1] if names else ""


def list_assumed_figures() -> tuple[Assumed, ...]:
    """Return every figure of the table that no publication gives."""
    of_devices = [each for _, device in devices() for each in device.assumed.values()]
    of_attention = [
        _assume(_name_share(row), row["share"])
        for row in _table()["attention"]
        if "range" in row["share"]
    ]
    return (*of_devices, *of_attention)


@cache
def _table() -> dict[str, Any]:
    file = files("foretrace.transforms.costs").joinpath("devices.toml")
    return tomllib.loads(file.read_text("utf-8"))
