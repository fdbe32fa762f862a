"""Archives of pairs and results of a batch, which say something that they should not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from foretrace.batch.rows import Row
from tests.fuzz.seeds import pair_members, seeds, tar_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def changed_archive(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write an archive of two pairs, of which the file of the second was changed."""
    inside = pair_members(seeds())
    pair = json.loads(inside["mlp/fused.pair.json"])
    change(pair)
    inside["mlp/fused.pair.json"] = json.dumps(pair).encode()
    path = folder / "pairs.tar"
    path.write_bytes(tar_of(inside))
    return path


def result_row(**more: Any) -> Row:
    """Return a row of results."""
    times = {"before_ns": 2.0, "replayed_ns": 2.0, "predicted_ns": 1.0, "low_ns": 0.9}
    return Row(
        "a" * 32,
        "1",
        "job",
        "job",
        "amp",
        "amp",
        **(times | {"high_ns": 1.1, "samples": 1.0} | more),
    )
