"""Time every step of some trainings, from the first one on, each in a process of its own.

    python -m benchmarks.accuracy.job.recording.step_times --out FILE.csv [--jobs dlrm gnn]

A row per step: job, step, seconds, and the load of the machine when the job began.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from foretrace.tracer.child_process import FIXED_ENVIRONMENT
from foretrace.tracer.job import load_job, runner
from foretrace.tracer.lab.zoo.named import find_model

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = ("job", "step", "seconds", "load")
CNN = ("small_cnn", "small_cnn_loading")
JOBS = (*CNN, "autoencoder", "mobilenet", "lstm-lm", "dlrm", "gpt2", "resnet50", "gnn")


def main() -> None:
    """Run the jobs one after the other and write what their steps took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--jobs", nargs="+", default=JOBS)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        _write(given.out, given.alone, times(given.alone, given.steps))
        return
    with given.out.open("w", newline="") as file:
        csv.writer(file).writerow(COLUMNS)
    for job in given.jobs:
        print(job, flush=True)
        again = ["--out", given.out, "--steps", str(given.steps), "--alone", job]
        command = [sys.executable, "-m", __spec__.name, *map(str, again)]
        subprocess.run(command, env=os.environ | FIXED_ENVIRONMENT, check=True)


def times(name: str, steps: int) -> list[float]:
    """Return the seconds of each step of a new training, the first one included."""
    run = _training(name)
    stamps = [time.perf_counter()]
    for _ in range(steps):
        run()
        stamps.append(time.perf_counter())
    return [end - start for start, end in itertools.pairwise(stamps)]


def _training(name: str) -> Callable[[], None]:
    torch.set_num_threads(1)
    if name in CNN:
        target = Path(__file__).parents[4] / "examples" / "small_cnn.py"
        return runner(load_job(f"{target}:{'job' if name == 'small_cnn' else 'loading'}"))
    model = find_model(name)
    batch = model.batch(model.small.batch_size, small=True)
    network = model.network(small=True)
    optimizer = torch.optim.Adam(network.parameters())

    def step() -> None:
        optimizer.zero_grad()
        network(*batch).backward()
        optimizer.step()

    return step


def _write(path: Path, name: str, seconds: list[float]) -> None:
    load = round(os.getloadavg()[0], 2)
    with path.open("a", newline="") as file:
        rows = csv.writer(file)
        rows.writerows((name, at, f"{s:.6f}", load) for at, s in enumerate(seconds, 1))


if __name__ == "__main__":
    main()
