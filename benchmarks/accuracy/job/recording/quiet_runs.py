"""Run what needs a quiet machine, one after the other, with one thread and a fixed allocator.

python -m benchmarks.accuracy.job.recording.quiet_runs --out FOLDER
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.tracer.child_process import FIXED_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM = "benchmarks.accuracy.job.recording"
MODELS = Path(__file__).with_name("batch_schedules.py")
CHANGES = [f"batch_size(n={size})" for size in (32, 64, 128, 256)]


def commands(out: Path) -> Iterator[list[str]]:
    """Yield what is run, in order."""
    yield ["-m", f"{ROOM}.batch_schedules", "--out", str(out)]
    for setting in ("even", "slow-disk"):
        yield ["-m", f"{ROOM}.loading", "--setting", setting, "--out", str(out)]
    for model in ("cnn", "mlp"):
        recording, job = out / f"{model}-16.parquet", f"{MODELS}:{model}_job"
        calibrate = ["-m", "foretrace", "calibrate", str(recording), job, *CHANGES]
        yield [*calibrate, "--seconds", "6", "--no-cache"]
    yield ["-m", f"{ROOM}.step_times", "--out", str(out / "step-times-quiet.csv")]


def main() -> None:
    """Run each in a process of its own; one that fails stops the rest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--from", dest="first", type=int, default=1, help="start at this one")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for command in list(commands(chosen.out))[chosen.first - 1 :]:
        subprocess.run([sys.executable, *command], env=os.environ | FIXED_ENVIRONMENT, check=True)


if __name__ == "__main__":
    main()
