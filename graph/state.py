"""What is known of a job beside its tables, declared once: `JobState`.

In: what inference and what-ifs leave for those that come after them. Out: one frozen record per
graph; docs/schema.md prints its fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foretrace.graph.shared_links import Network


@dataclass(frozen=True)
class ProcessGroup:
    """A process group as a recording names it; ``size`` is −1 where unknown."""

    name: str | None = None
    size: int = -1

    def __str__(self) -> str:
        """Return what a sentence calls it."""
        return f" of group {self.name}" if self.name else ""


class Grid(NamedTuple):
    """How the ranks of a recorded timeline of operations are arranged."""

    replicas: int
    stages: int


class Autocast(NamedTuple):
    """What `amp` moved products to: the type, and the library of the attention kernels."""

    dtype: str
    attention: str


class Applied(NamedTuple):
    """A what-if that was applied: its name, its text, and where the new costs come from.

    ``source`` is "measured" (a calibration), "rule", or "nothing" where nothing changed.
    """

    name: str
    text: str
    source: str


class OptimizerUpdate(NamedTuple):
    """One of several updates of a step: the optimizer's class, and its rows among the operators."""

    optimizer: str
    operators: tuple[int, ...]


class Doubt(NamedTuple):
    """Something that may be wrong in answers from this very recording.

    ``code`` names the kind ("untraced-wait"), ``text`` says in a sentence what is missing, how much
    of a step it may be and what to record or pass instead; ``place`` where, such as "step 3, stream
    7, before gemm". ``share`` is how much of a step it is about, 0 where that is not known. What is
    true of every answer is a warning, no doubt.
    """

    code: str
    text: str
    place: str = ""
    share: float = 0.0

    @property
    def keys(self) -> dict[str, str]:
        """What JSON holds of it."""
        return {"code": self.code, "text": self.text, "place": self.place}

    def __str__(self) -> str:
        """Return it as reports say it.

        >>> str(Doubt("outlier-step", "one step took 5 ms", "step 3"))
        'outlier-step, step 3: one step took 5 ms'
        """
        return (
            f"{self.code}, {self.place}: {self.text}" if self.place else f"{self.code}: {self.text}"
        )


MISSING = "device-work-missing"
"""Code of the doubt about launches whose work is not in the recording."""


class SeenLoader(NamedTuple):
    """What calls of ``next()`` on a loader with worker processes showed; times in ns.

    ``handover_ns`` is what a call takes that finds its batch ready, a usual cost unless
    ``handover_seen``; the shortest call took ``shortest_ns``. ``waited`` tells whether batches were
    waited for: else nothing shows what one costs. ``burst_ns`` is the only wait of the recording
    where workers deliver together and it was too short to show after how many steps, and
    ``others_ns`` a step without it; else 0. A batch may cost ``slack`` times as much as assumed.
    Calls that are ``alike`` and short enough for that may all have found their batch ready.
    """

    handover_ns: int
    handover_seen: bool
    shortest_ns: int
    waited: bool
    burst_ns: int = 0
    others_ns: int = 0
    slack: tuple[float, float] = (1.0, 1.0)
    alike: bool = False


MEMORY_PARTS = (
    "parameters",
    "gradients",
    "optimizer_state",
    "activations",
    "inputs",
    "temporary",
    "update",
    "other",
)
"""Who holds memory: parameters with buffers, gradients, states of the optimizer, what forward keeps
for backward, batches, what a phase takes and gives back, the same in the optimizer, and what is not
known to be any of these."""


class Block(NamedTuple):
    """Bytes that an allocator handed out, from when to when (ns), and the module that ran then."""

    begin: int
    end: int
    size: float
    module: str


class Allocations(NamedTuple):
    """What an allocator's events showed, at moments in order of time.

    ``held`` has, per moment, the bytes of each of `MEMORY_PARTS`, as far as they were taken while
    events were recorded; ``before`` are those held all along (None: unknown), ``left`` what the
    events take more than they give back. ``device`` is −1 for the host. ``blocks`` are the
    activations that came and went, in order of ``begin``.
    """

    device: int
    start_ns: tuple[int, ...]
    phases: tuple[str, ...]
    held: tuple[tuple[float, ...], ...]
    left: float
    before: float | None
    blocks: tuple[Block, ...] = ()


class ActivationChange(NamedTuple):
    """What a what-if does to tensors that forward keeps for backward, of ``kinds`` (none: all).

    Each takes ``factor`` times its bytes; so do what is made of its ``gradients``. ``encoded`` ones
    lie in full beside that while they are written and read. With ``ahead`` they lie on the device
    only until the layer so many later runs, and from so many layers before they are needed. Of
    ``calls``, paths of modules ("" is the whole network), only the input is kept and the rest
    computed again.
    """

    kinds: tuple[str, ...] = ()
    factor: float = 1.0
    gradients: bool = False
    encoded: bool = False
    ahead: int | None = None
    calls: tuple[str, ...] = ()


class MemoryChange(NamedTuple):
    """What a what-if does to one of `MEMORY_PARTS`: bytes times ``factor``, and ``added`` ones."""

    part: str
    factor: float = 1.0
    added: float = 0.0


def _says(meaning: str, unit: str = "") -> dict[str, str]:
    """Return what the schema page says of a field."""
    return {"meaning": meaning, "unit": unit}


@dataclass(frozen=True)
class JobState:
    """What is known of a job beside its tables; `Graph.with_state` makes a graph with more of it.

    What a room above the graph owns (clusters, calibrations) is held and not looked into.
    """

    host_period_ns: float = field(
        default=0.0, metadata=_says("step of the host in the recorded window", "ns")
    )
    steps_from: str | None = field(
        default=None,
        metadata=_says("the range that begins a step, numbers as #; None: no steps were found"),
    )
    process_groups: Mapping[int, ProcessGroup] | None = field(
        default=None,
        metadata=_says("of one rank of several: the group of each collective, by row in tasks"),
    )
    grid: Grid | None = field(
        default=None,
        metadata=_says("of a timeline of operations: data-parallel replicas and pipeline stages"),
    )
    network: Network | None = field(
        default=None, metadata=_says("links that lanes share, and what overlapping costs")
    )
    workers: Any = field(
        default=None,
        metadata=_says("the job's `Placement`: its cluster, and the device of each worker"),
    )
    ranks_unfolded: bool = field(
        default=False, metadata=_says("the copies of the recorded rank are in the graph")
    )
    tensor_parallel: int | None = field(
        default=None,
        metadata=_says("devices that share each layer, where `tensor_parallel` was applied"),
    )
    autocast: Autocast | None = field(
        default=None,
        metadata=_says("what `amp` moved products to; their kernels keep their fp32 names"),
    )
    tf32: tuple[str, ...] = field(
        default=(),
        metadata=_says("classes of fp32 kernels moved to TF32 by a what-if; they keep their names"),
    )
    kept_activations: tuple[ActivationChange, ...] = field(
        default=(), metadata=_says("what what-ifs did to the activations, in order")
    )
    memory_changes: tuple[MemoryChange, ...] = field(
        default=(),
        metadata=_says("what what-ifs did to other parts of the memory than activations"),
    )
    gradients_stay: bool = field(
        default=False, metadata=_says("gradients of one pass are still there in the next")
    )
    allocations: Allocations | None = field(
        default=None, metadata=_says("who holds memory, where an allocator's events were recorded")
    )
    updates: tuple[OptimizerUpdate, ...] = field(
        default=(),
        metadata=_says("of a job with several optimizers: the updates of a step, in order"),
    )
    calibration: Any = field(
        default=None, metadata=_says("the `Calibration` that goes before every rule")
    )
    calibration_uses: int = field(
        default=0, metadata=_says("how often a calibration said what something costs")
    )
    applied: tuple[Applied, ...] = field(
        default=(), metadata=_says("every what-if applied, in order")
    )
    assumed: tuple[Any, ...] = field(
        default=(),
        metadata=_says("the `Assumed` constants, without a published source, that what-ifs used"),
    )
    warnings: tuple[str, ...] = field(
        default=(), metadata=_says("what what-ifs warn of in every prediction")
    )
    loader: SeenLoader | None = field(
        default=None,
        metadata=_says("what calls of a loader with worker processes showed, where there is one"),
    )
    doubts: tuple[Doubt, ...] = field(
        default=(), metadata=_says("what of the recording may make answers from it wrong")
    )
    latency_range: Any = field(
        default=None,
        metadata=_says(
            "`Latency` of the recorded collectives, where a what-if needed it: likely, and a range",
            "ns",
        ),
    )
    latency_end: str = field(
        default="likely",
        metadata=_says("what `network` takes of it: least, likely or most"),
    )
    untraced_call_ns: float = field(
        default=0.0,
        metadata=_says("of a step, what calls waited for something that no recording shows", "ns"),
    )
    assumed_launches: tuple[str, ...] = field(
        default=(),
        metadata=_says("calls that launch at an assumed cost: each one recorded waited"),
    )
    period_spread: float | None = field(
        default=None,
        metadata=_says(
            "relative spread of the device's steps, where those of earlier calls are taken for the"
            " recorded ones, whose own are missing"
        ),
    )
    gap_range: tuple[float, float] | None = field(
        default=None,
        metadata=_says(
            "least and most of the gap between kernels, over the usual one that is taken where the"
            " recording shows none"
        ),
    )
    samples_ratio: float | None = field(
        default=None,
        metadata=_says("samples of a step over those recorded, where a what-if changed them"),
    )
