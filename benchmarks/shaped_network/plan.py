"""What is measured over shaped links, the most valuable first; data alone.

A `Group` is a set of processes that live together; it visits its cells in two rounds, up and down
the link speeds, so that a machine that is slow for a while shows as repeats that differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError
from foretrace.tracer.lab.network.collective_sweep import KIB, LONGEST_OPERATION_S, SIZES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MIB = KIB << 10
RATES = (100, 200, 300, 500, 1000)  # Mbit/s
CAPS_MB = (25, 1, 4)
UPLINK_MBIT = 300
RACK_MBIT = 1000
GATHERED = (512 * KIB, 2 * MIB, 8 * MIB)  # all_gather jumps somewhere between the others
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
WIRE_OVERHEAD = 1514 / 1448  # frame over payload of a full TCP segment
CONTENTION_BYTES = 4 * MIB
COMPUTED = ("products", "sums")  # in cache, from memory
SETTLED = 24  # steps; workers that begin together come apart over the first five or so
HELD_OUT = ("lstm", "mixer")
"""Used once, after the rules of prediction are fixed."""


@dataclass(frozen=True)
class Setup:
    """One scheme with its options, visited at all of ``rates`` (Mbit/s, ``None`` unshaped).

    ``training`` is what runs it: a key of `data_parallel.TRAININGS`, "sweep" or "contend". With
    ``ingress`` ranks receive no faster than that, either. A visit has at least ``fewest`` steps.
    """

    scheme: str
    training: str
    rates: tuple[int | None, ...]
    options: dict[str, Any] = field(default_factory=dict)
    ingress: bool = False
    fewest: int = 0

    @property
    def trains(self) -> bool:
        """Whether it trains a model, rather than timing collectives alone."""
        return self.training not in ("sweep", "contend")


@dataclass(frozen=True)
class Group:
    """Processes that live together: ``ranks`` that compute ``model``, then ``servers``.

    ``racks`` has the rack of each process; empty, all are in one.
    """

    model: str | None
    ranks: int
    setups: tuple[Setup, ...]
    servers: int = 0
    racks: tuple[int, ...] = ()

    @property
    def all_racks(self) -> tuple[int, ...]:
        """The rack of each process."""
        return self.racks or (0,) * (self.ranks + self.servers)

    @property
    def job(self) -> str | None:
        """Name of the recording of the job alone."""
        return self.model and f"{self.model}-x{self.ranks}"


def _ddp(*caps_mb: float | None, rates: tuple[int | None, ...] = RATES) -> tuple[Setup, ...]:
    return tuple(Setup("ddp", "ddp", rates, {"cap_mb": cap}) for cap in caps_mb)


def _with_hook(scheme: str, rates: tuple[int | None, ...], **options: Any) -> Setup:
    return Setup(scheme, "ddp", rates, {"cap_mb": 25, **options})


def _pipelines(rates: tuple[int | None, ...]) -> tuple[Setup, ...]:
    blocking = [{"micro_batches": k, "schedule": "gpipe", "waits": True} for k in (1, 2, 4, 8)]
    ahead = [{"micro_batches": k, "schedule": "1f1b", "waits": False} for k in (2, 4, 8)]
    return tuple(Setup("pipeline", "pipeline", rates, options) for options in (*blocking, *ahead))


def _servers() -> tuple[Setup, ...]:
    scheme = "parameter_server"
    both = [
        Setup(scheme, scheme, (300, 1000), {"mode": mode}, fewest=fewest)
        for mode, fewest in (("bsp", 0), ("asp", SETTLED))
    ]
    slow = [
        replace(setup, rates=(1000,), options={**setup.options, "sleep_ms": 100}) for setup in both
    ]
    return (*both, *slow, replace(both[0], ingress=True))


def _sweeps(
    kinds: Iterable[str],
    ranks: int,
    rates: tuple[int, ...] = RATES,
    sizes: tuple[int, ...] = SIZES,
) -> tuple[Setup, ...]:
    """Return each of *kinds* at all sizes, but not on links where one operation takes too long."""
    return tuple(
        Setup(kind, "sweep", quick, {"bytes": size})
        for kind in kinds
        for size in sizes
        if (quick := tuple(r for r in rates if _all_reduce_s(size, ranks, r) < LONGEST_OPERATION_S))
    )


def _all_reduce_s(size: int, ranks: int, rate_mbit: int) -> float:
    """Return what an all-reduce of *size* bytes takes by the ring's formula, in s."""
    return 2 * (ranks - 1) / ranks * size * WIRE_OVERHEAD * 8 / (rate_mbit * 1e6)


MORE = _ddp(None, rates=(300, 1000)) + _ddp(25, rates=(2000, None))
"""torch's default buckets; links on which nothing is judged."""

PLAN = (
    *(Group(model, 2, _ddp(*CAPS_MB) + MORE) for model in ("gpt", "conv", "mlp")),
    *(Group(model, 2, _ddp(*CAPS_MB)) for model in HELD_OUT),
    Group(
        None,
        2,
        (
            *_sweeps((*KINDS, "send", "ping_pong"), ranks=2),
            *_sweeps(("all_gather",), ranks=2, sizes=GATHERED),
            *(Setup("contention", "contend", (*RATES, None), {"compute": c}) for c in COMPUTED),
        ),
    ),
    Group(
        "gpt",
        2,
        (
            _with_hook("fp16", (300, 500, 1000), compression="fp16"),
            *(_with_hook("no_sync", (300, 1000), accumulation=k) for k in (2, 4)),
            *(_with_hook("slow_rank", (300, 1000), sleep_ms=ms) for ms in (50, 200)),
            _with_hook("powersgd", (300,), compression="powersgd"),
            Setup("fsdp", "fsdp", (300, 1000)),
        ),
    ),
    Group("gpt-8", 2, _pipelines((300, 1000))),
    Group("gpt", 2, _servers(), servers=1),
    *(
        Group(
            "gpt",
            4,
            (*_ddp(25, rates=(RACK_MBIT,)), *_sweeps(("all_reduce",), 4, (RACK_MBIT,))),
            racks=racks,
        )
        for racks in ((0, 0, 1, 1), (0, 1, 0, 1))
    ),
    Group(
        "wide",
        2,
        (
            Setup("fsdp", "fsdp", (300, 500, 1000)),
            *_ddp(*CAPS_MB),
            *MORE,
            _with_hook("fp16", (300, 1000), compression="fp16"),
        ),
    ),
    *(Group(model, 4, _ddp(25, 1, rates=(300, 1000))) for model in ("gpt", "conv")),
    Group(None, 4, _sweeps(KINDS, ranks=4)),
)
"""In the order in which a time budget is spent."""


def draw_groups(count: int, seed: int) -> list[Group]:
    """Return the groups of *count* models drawn by *seed*, each with every scheme at two rates."""
    rates = (200, 800)
    setups = (
        *_ddp(None, rates=rates),
        _with_hook("no_sync", rates, accumulation=2),
        Setup("fsdp", "fsdp", rates),
        Setup(
            "pipeline",
            "pipeline",
            rates,
            {"micro_batches": 4, "schedule": "gpipe", "waits": True},
        ),
    )
    return [Group(f"drawn-{100 * seed + at}", 2, setups) for at in range(count)]


SCHEMES = tuple(dict.fromkeys(setup.scheme for group in PLAN for setup in group.setups))
MODELS = tuple(dict.fromkeys(group.model for group in PLAN if group.model))


def select_groups(models: Sequence[str] | None, schemes: Sequence[str] | None) -> list[Group]:
    """Return the groups of `PLAN`, reduced to *models* and *schemes*; ``None`` stands for all.

    What needs no model is kept unless models are named.

    Raises
    ------
    RecordError
        A name is unknown; the text lists what there is.
    """
    _require(models, MODELS, "model")
    _require(schemes, SCHEMES, "scheme")
    kept = []
    for group in PLAN:
        setups = tuple(s for s in group.setups if not schemes or s.scheme in schemes)
        if setups and (not models or group.model in models):
            kept.append(replace(group, setups=setups))
    return kept


def _require(names: Sequence[str] | None, choices: Sequence[str], what: str) -> None:
    for name in names or ():
        if name not in choices:
            raise RecordError(f"no {what} is called {name!r}: choose from {', '.join(choices)}")
