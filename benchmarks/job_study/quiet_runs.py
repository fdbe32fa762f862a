"""Run what needs a quiet machine, one after the other, with one thread and a fixed allocator.

python benchmarks/job_study/quiet_runs.py --out FOLDER
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from foretrace.tracer.measure import FIXED_ENVIRONMENT

RUNS = ("batch_schedules.py", "loading.py")


def main() -> None:
    """Run each script in a process of its own; one that fails stops the rest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name in RUNS:
        command = [sys.executable, str(Path(__file__).with_name(name)), "--out", str(out)]
        subprocess.run(command, env=os.environ | FIXED_ENVIRONMENT, check=True)


if __name__ == "__main__":
    main()
