"""The jobs of the truth set as drawn, and the ways in which each is trained. Standard library only.

`read_jobs` gives the list that is kept beside this file; `sides_of` what is measured of a job.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIST = Path(__file__).with_name("jobs.tsv")
BASE = "base"
FAMILIES = ("transformers", "vision", "loop")


@dataclass(frozen=True)
class Sizes:
    """How large a network and its samples are.

    ``width`` counts channels, ``depth`` blocks, ``length`` tokens, pixels of an edge, or nodes.
    ``more`` is what only one kind of network has.
    """

    width: int
    depth: int
    length: int
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DrawnJob:
    """One job of the list.

    ``optimizer`` is "adam", "adamw", "sgd" or "adagrad". ``blocks`` is a regular expression for
    its repeated modules, ``removed`` the path of one without which it trains as well; "" without.
    ``workers`` are those of the loader after the change, 0 where batches lie in memory; a sample
    costs the loader ``load_us`` of waiting and ``load_rounds`` of work. ``changes`` names what is
    measured; ``accumulation`` is the k of that change.
    """

    name: str
    family: str
    architecture: str
    held_out: bool
    threads: int
    batch_size: int
    sizes: Sizes
    optimizer: str = "adam"
    blocks: str = ""
    removed: str = ""
    workers: int = 0
    load_us: int = 0
    load_rounds: int = 0
    accumulation: int = 2
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Side:
    """One way to train a job: what is set, and the what-ifs that predict it; none of the base."""

    name: str
    batch_factor: int = 1
    amp: bool = False
    fused: bool = False
    channels_last: bool = False
    accumulation: int = 1
    checkpointing: bool = False
    without: bool = False
    workers: int = 0
    threads: int = 0  # 0: those of the job
    what_ifs: tuple[str, ...] = ()


def sides_of(job: DrawnJob) -> list[Side]:
    """Return the base and then one side for each change of *job*; "a+b" is both at once."""
    return [Side(BASE), *(_side(job, change) for change in job.changes)]


def _side(job: DrawnJob, change: str) -> Side:
    side = Side(change)
    for part in change.split("+"):
        settings, what_if = _settings(job, part)
        side = replace(side, **settings, what_ifs=(*side.what_ifs, what_if))
    return side


def _settings(job: DrawnJob, change: str) -> tuple[dict[str, Any], str]:
    """Return what *change* sets, and the what-if that says so."""
    known: dict[str, tuple[dict[str, Any], str]] = {
        "batch_size": ({"batch_factor": 2}, f"batch_size(n={2 * job.batch_size})"),
        "amp": ({"amp": True}, 'amp(dtype="bf16")'),
        "fused_optimizer": ({"fused": True}, 'fused_optimizer(kind="fused")'),
        "channels_last": ({"channels_last": True}, "channels_last()"),
        "gradient_accumulation": (
            {"accumulation": job.accumulation},
            f"gradient_accumulation(k={job.accumulation})",
        ),
        "activation_checkpoint": (
            {"checkpointing": True},
            f"activation_checkpoint(modules={json.dumps(job.blocks)})",
        ),
        "remove_modules": (
            {"without": True},
            f"remove_modules(pattern={json.dumps(job.removed.replace('.', chr(92) + '.'))})",
        ),
        "dataloader": ({"workers": job.workers}, f"dataloader(workers={job.workers})"),
        "cpu_cores": ({"threads": 2}, "cpu_cores(n=2)"),
    }
    return known[change]


def find_job(name: str, path: Path = LIST) -> DrawnJob:
    """Return the job of the list that is called *name*."""
    return next(job for job in read_jobs(path) if job.name == name)


def read_jobs(path: Path = LIST) -> list[DrawnJob]:
    """Read a list of jobs."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line[:1] != "#"]
    names, *rows = (line.split("\t") for line in lines)
    return [_from_row(dict(zip(names, row, strict=True))) for row in rows]


def write_jobs(path: Path, jobs: Iterable[DrawnJob], remarks: Sequence[str]) -> None:
    """Write *jobs*, with *remarks* about how they were drawn, as lines of a table."""
    names = [f.name for f in fields(DrawnJob)]
    lines = [f"# {remark}" for remark in remarks]
    lines.append("\t".join(names))
    for job in jobs:
        values = asdict(job)
        lines.append("\t".join(_text(values[name]) for name in names))
    path.write_text("\n".join(lines) + "\n", "utf-8")


def to_json(job: DrawnJob) -> str:
    """Return *job* as text for another process."""
    return json.dumps(asdict(job))


def from_json(text: str) -> DrawnJob:
    """Return what `to_json` was given."""
    values = json.loads(text)
    sizes, changes = Sizes(**values.pop("sizes")), tuple(values.pop("changes"))
    return DrawnJob(**values, sizes=sizes, changes=changes)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _from_row(row: dict[str, str]) -> DrawnJob:
    is_text = {f.name for f in fields(DrawnJob) if f.type == "str"}
    values = {name: text if name in is_text else json.loads(text) for name, text in row.items()}
    return from_json(json.dumps(values))
