"""Studies of small recordings, for tests of batches."""

from __future__ import annotations

import json
import lzma
from typing import TYPE_CHECKING

from foretrace.batch.rows import Row
from tests.support.recordings.kineto import small_trace, write_small_trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FASTER = "faster_host(speedup=2)"
NOTHING = "faster_kernels(pattern='no such kernel', speedup=2)"


def write_study(folder: Path, scenarios: Sequence[str], traces: Sequence[str] = ("a", "b")) -> Path:
    """Write a study of recordings with the names *traces*, all alike, into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    recording = write_small_trace(folder)
    for name in traces:
        (folder / f"{name}.json").write_bytes(recording.read_bytes())
    recording.unlink()
    study = folder / "study.toml"
    study.write_text(
        f"scenarios = {json.dumps(list(scenarios))}\n"
        + "".join(f'[[trace]]\npath = "{name}.json"\n' for name in traces),
        "utf-8",
    )
    return study


def row(recording: str = "a", **settings: object) -> Row:
    """Return a row that took 100 before, 50 after, and was predicted at 55."""
    values: dict[str, object] = {
        "model": recording,
        "scenario": "amp",
        "transforms": "amp",
        "hardware": "gpu",
        "before_ns": 100.0,
        "replayed_ns": 100.0,
        "predicted_ns": 55.0,
        "low_ns": 45.0,
        "high_ns": 60.0,
        "samples": 1.0,
        "status": "validated",
        "after_ns": 50.0,
        "noise": 0.0,
    }
    values |= {"key": f"key of {recording}", "version": "0.1.0", "recording": recording}
    return Row(**{**values, **settings})  # type: ignore[arg-type]


def write_pair(folder: Path, name: str = "amp") -> None:
    """Write a pair of the small recording, 2 ms before and 1 ms after, into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    side = {"trace": "recording.json", "facts": {}, "mean_ns": 2_000_000}
    content = {
        "device": "cuda",
        "model": "small",
        "change": name,
        "scenario": FASTER,
        "noise": 0.01,
        "before": side,
        "after": {**side, "mean_ns": 1_000_000},
    }
    (folder / f"{name}.pair.json").write_text(json.dumps(content), "utf-8")
    packed = lzma.compress(json.dumps(small_trace()).encode())
    (folder / "recording.json.xz").write_bytes(packed)
