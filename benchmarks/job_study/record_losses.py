"""Train the small problems and keep what a log would: step, loss, learning rate.

    python benchmarks/job_study/record_losses.py OUT.parquet [PROBLEM...]

The first eight problems are trained in four ways with three seeds, the others in all ways with the
third. The constants of the method were chosen on the first two seeds; the third judges them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from problems import PROBLEMS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS = 2000
TUNING = (1, 2)
JUDGING = 3
WARM_UP = 0.05
"""Share of the steps in which the learning rate rises."""
STEP_FACTOR = 0.2
"""What is left of the learning rate when it falls."""
UNSEEN = ("deep", "factors", "gru")
"""Problems that no constant was chosen on."""


def constant(_share: float) -> float:
    """Return the learning rate, in parts of its largest, after a share of the steps."""
    return 1.0


def warm_up(share: float) -> float:
    """Return a rate that rises to its largest and stays."""
    return min(1.0, share / WARM_UP + 1e-2)


def step(share: float) -> float:
    """Return a rate that falls once, early."""
    return 1.0 if share < 0.25 else STEP_FACTOR  # noqa: PLR2004 - a quarter


def late_step(share: float) -> float:
    """Return a rate that falls once, shortly before half of the steps."""
    return 1.0 if share < 0.4 else STEP_FACTOR  # noqa: PLR2004 - two fifths


WAYS: dict[str, tuple[str, Callable[[float], float]]] = {
    "sgd": ("sgd", constant),
    "adam": ("adam", constant),
    "sgd-step": ("sgd", step),
    "adam-warm-up": ("adam", warm_up),
    "momentum": ("momentum", constant),
    "adam-late-step": ("adam", late_step),
}
FIRST_WAYS = ("sgd", "adam", "sgd-step", "adam-warm-up")


def runs() -> Iterator[tuple[str, str, int]]:
    """Yield problem, way and seed of every run."""
    for problem in PROBLEMS:
        is_unseen = problem in UNSEEN
        for way in WAYS if is_unseen else FIRST_WAYS:
            for seed in (JUDGING,) if is_unseen else (*TUNING, JUDGING):
                yield problem, way, seed


def optimizer(kind: str, problem: Problem, network: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of a way, at the problem's learning rate."""
    if kind == "adam":
        return torch.optim.Adam(network.parameters(), problem.adam)
    if kind == "momentum":
        return torch.optim.SGD(network.parameters(), problem.sgd / 5, momentum=0.9)
    return torch.optim.SGD(network.parameters(), problem.sgd)


def train(problem: Problem, way: str, seed: int) -> Iterator[tuple[int, float, float]]:
    """Yield step, loss and learning rate."""
    torch.manual_seed(seed)
    network, loss_of = problem.build(torch.Generator().manual_seed(seed))
    kind, schedule = WAYS[way]
    optimizing = optimizer(kind, problem, network)
    largest = optimizing.param_groups[0]["lr"]
    for number in range(1, STEPS + 1):
        rate = largest * schedule((number - 1) / STEPS)
        optimizing.param_groups[0]["lr"] = rate
        optimizing.zero_grad()
        loss = loss_of(network)
        loss.backward()
        optimizing.step()
        yield number, loss.item(), rate


def recorded(name: str, way: str, seed: int) -> pa.Table:
    """Return the log of one run, with its name."""
    rows = list(train(PROBLEMS[name], way, seed))
    print(f"{name} {way} {seed}: {rows[0][1]:.3g} to {rows[-1][1]:.3g}", flush=True)
    numbers, losses, rates = zip(*rows, strict=True)
    return pa.table(
        {
            "run": pa.array([f"{name} {way} {seed}"] * STEPS).dictionary_encode(),
            "step": pa.array(numbers, pa.int32()),
            "loss": pa.array(losses, pa.float32()),
            "lr": pa.array(rates, pa.float32()),
        }
    )


def main(out: str, *names: str) -> None:
    """Train them all, or the problems named."""
    torch.set_num_threads(1)
    tables = [recorded(*run) for run in runs() if not names or run[0] in names]
    whole = pa.concat_tables(tables).unify_dictionaries()
    pq.write_table(whole, out, compression="zstd", compression_level=9)


if __name__ == "__main__":
    main(*sys.argv[1:])
