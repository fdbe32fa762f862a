"""``python -m benchmarks.counterfactual``: random programs with known answers, predicted.

Every program of the counterfactual laboratory (tests/counterfactual) is recorded as a profiler
would, asked a few what-ifs, and run again with the change made. Writes a table of all predictions
and the page docs/accuracy-counterfactual.md.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd

from benchmarks.counterfactual.page import page
from foretrace.tracer.child_process import end_with
from foretrace.util.atomic_write import write_atomically
from tests.counterfactual.draw import random_changes, random_program
from tests.counterfactual.judge import judge

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "accuracy-counterfactual.md"
CHUNK = 10


def main(arguments: list[str] | None = None) -> None:
    """Judge the programs asked for and write table and page."""
    asked = _parser().parse_args(arguments)
    seeds = range(asked.seed, asked.seed + asked.programs)
    begun = perf_counter()
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(asked.jobs, None, _start, (os.getpid(),)) as pool:
        for number, judged in enumerate(
            pool.map(_judge_seed, seeds, [asked.changes] * len(seeds), chunksize=CHUNK)
        ):
            rows += judged
            if sys.stderr.isatty() and number % 20 == 0:
                sys.stderr.write(f"\r{number} of {len(seeds)} programs")
    took = perf_counter() - begun
    table = pd.DataFrame(rows)
    table.to_parquet(asked.table)
    write_atomically(asked.page, page(table, asked.programs, asked.seed).encode())
    shares = table["outcome"].value_counts(normalize=True)
    sys.stdout.write(
        f"{len(table)} predictions in {took:.0f} s ({len(table) / took:.1f} a second): "
        + ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
        + f"\nwrote {asked.table} and {asked.page}\n"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counterfactual")
    parser.add_argument("--programs", type=int, default=2_000)
    parser.add_argument("--changes", type=int, default=3, help="what-ifs per program")
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", type=Path, default=Path("counterfactual.parquet"))
    parser.add_argument("--page", type=Path, default=PAGE)
    return parser


def _start(parent: int) -> None:
    """End with *parent*; leave short-lived objects, of which there are many, to their counts."""
    end_with(parent)
    gc.freeze()
    gc.set_threshold(200_000)


def _judge_seed(seed: int, count: int) -> list[dict[str, Any]]:
    """Judge one program. A crash of the tool is a verdict as well."""
    case = random_program(seed)
    about = {"seed": seed, "meant": case.meant}
    try:
        verdicts = judge(case, random_changes(case.program, seed, count))
    except Exception:  # noqa: BLE001 - whatever it is, the page counts it
        return [{**about, "outcome": "crashed", "doubts": [traceback.format_exc()]}]
    return [{**about, **verdict.row} for verdict in verdicts]


if __name__ == "__main__":
    main()
