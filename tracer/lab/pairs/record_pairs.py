"""Record before/after pairs over models and changes; `read_archive` reads them.

Needs torch and the standard library only. One process per model on a GPU, per pair on a CPU, does
the measuring (`campaign`, `worker`); this one packs what there is and writes the cards.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.errors import RecordError
from foretrace.tracer.lab.pairs.archive import pack
from foretrace.tracer.lab.pairs.campaign import run_all, say
from foretrace.tracer.lab.pairs.card import write_cards
from foretrace.tracer.lab.pairs.worker import CPU_PLAN, CUDA_PLAN, PairPlan, Task
from foretrace.tracer.lab.zoo.models import BY_NAME as MODELS
from foretrace.tracer.lab.zoo.variants import BY_NAME as CHANGES

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKING_SHARE = 0.08  # of the budget is kept for compressing and packing ...
PACKING_SECONDS = 30.0  # ... but no more than this


@dataclass(frozen=True)
class PairArchives:
    """What a run left behind: archives, cards, and in words what it could not do."""

    archives: tuple[Path, ...]
    cards: tuple[Path, ...]
    left_out: tuple[str, ...]


def record_pairs(
    models: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    *,
    minutes: float = 8.0,
    cpu: bool = False,
    out: str | Path = "pairs",
    plan: PairPlan | None = None,
) -> PairArchives:
    """Measure *variants* of *models* before and after, for at most *minutes*, and pack the pairs.

    Interrupted, it packs what it has. ``None`` stands for all models and for all changes that are
    usual on the device; ``plan`` says how many steps are measured.

    Raises
    ------
    RecordError
        A name is unknown, torch is absent, or there is no GPU and *cpu* is not set.
    """
    groups = _groups(models, variants, cpu=cpu)
    _require_device(cpu=cpu)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    budget = 60 * minutes
    deadline = time.time() + budget - min(PACKING_SECONDS, PACKING_SHARE * budget)
    plan = plan or (CPU_PLAN if cpu else CUDA_PLAN)
    with tempfile.TemporaryDirectory(prefix="foretrace-pairs-", dir=out) as work:
        tasks = [Task(m, c, cpu, str(Path(work) / m), deadline, plan) for m, c in groups]
        left_out = run_all(tasks)
        archives, no_room = pack(Path(work), out, "pairs-cpu" if cpu else "pairs-cuda")
        cards = write_cards(Path(work), out)
    left_out += no_room
    for line in left_out:
        say(f"left out: {line}")
    say(f"wrote {len(archives)} archive(s) and {len(cards)} card(s) to {out}")
    return PairArchives(tuple(archives), tuple(cards), tuple(left_out))


def _groups(
    models: Sequence[str] | None, variants: Sequence[str] | None, *, cpu: bool
) -> list[tuple[str, list[str]]]:
    """Return (model, changes) per process."""
    chosen = _known(models, list(MODELS), "model")
    usual = [c.name for c in CHANGES.values() if c.on_cpu or not cpu]
    changes = _known(variants, list(CHANGES), "variant", usual)
    groups = [
        (m, [c for c in changes if CHANGES[c].applies_to(MODELS[m], cpu=cpu)]) for m in chosen
    ]
    if cpu:
        return [(model, [change]) for model, wanted in groups for change in wanted]
    return [group for group in groups if group[1]]


def _known(
    names: Sequence[str] | None, known: list[str], what: str, usual: list[str] | None = None
) -> list[str]:
    for name in names or ():
        if name not in known:
            raise RecordError(f"no {what} is called {name!r}: choose from {', '.join(known)}")
    return list(dict.fromkeys(names)) if names else (usual or known)


def _require_device(*, cpu: bool) -> None:
    if importlib.util.find_spec("torch") is None:
        raise RecordError("recording needs torch: pip install torch")
    if not cpu:
        import torch

        if not torch.cuda.is_available():
            raise RecordError("torch sees no GPU here: add --cpu for small shapes on the CPU")
