"""``python -m benchmarks.difference``: what `foretrace diff` says where the cause is known.

Pairs of random programs that differ in one cause (tests/counterfactual/causes.py) are recorded as
a profiler would, and compared; so are the public recordings of ``pairs.toml``. Writes a table of
all pairs and the page docs/accuracy-diff.md. Every third seed is held out: nothing was chosen on
those pairs, and they are compared with ``--look`` alone, which the page then says.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmarks.difference.page import page
from benchmarks.difference.public import judge_public_pairs
from foretrace.tracer.child_process import end_with
from foretrace.util.atomic_write import write_atomically
from tests.counterfactual.causes import draw_pair, judge_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "accuracy-diff.md"
SHARED = ROOT.parent / "shared" / "gpu-traces"
HELD_OUT = 3
"""Of so many seeds, the last is held out."""
AT_ONCE = 64


def main(arguments: list[str] | None = None) -> None:
    """Compare the pairs asked for and write table and page."""
    asked = _parser().parse_args(arguments)
    rows = list(islice(_judge_pairs(asked.seed, asked.jobs, look=asked.look), asked.pairs))
    table = pd.DataFrame(rows)
    table.to_parquet(asked.table)
    public = judge_public_pairs(asked.shared)
    write_atomically(asked.page, page(table, public, look=asked.look).encode())
    sys.stdout.write(
        f"{table['is_named'].mean():.1%} of {len(table)} causes named, {table['holds'].mean():.1%} "
        f"of the intervals hold\nwrote {asked.table} and {asked.page}\n"
    )


def is_held_out(seed: int) -> bool:
    """Tell whether nothing may be chosen on the pair of *seed*."""
    return seed % HELD_OUT == HELD_OUT - 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.difference")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--look", action="store_true", help="compare the held-out third, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--shared", type=Path, default=SHARED, help="folder of public recordings")
    parser.add_argument("--table", type=Path, default=Path("difference.parquet"))
    parser.add_argument("--page", type=Path, default=PAGE)
    return parser


def _judge_pairs(first: int, jobs: int, *, look: bool) -> Iterator[dict[str, Any]]:
    """Yield the verdicts on pairs in the order of their seeds, for as long as they are wanted."""
    seeds = (seed for seed in count(first) if look or not is_held_out(seed))
    with ProcessPoolExecutor(jobs, None, end_with, (os.getpid(),)) as pool:
        while True:
            for row in pool.map(_judge_seed, islice(seeds, AT_ONCE)):
                if row is not None:
                    yield row


def _judge_seed(seed: int) -> dict[str, Any] | None:
    """Judge the pair of *seed*, if there is one. A crash of the tool is a verdict as well."""
    pair = draw_pair(seed)
    if pair is None:
        return None
    about = {"seed": seed, "cause": pair.cause, "is_held_out": is_held_out(seed)}
    try:
        return {**judge_pair(pair).row, **about}
    except Exception:  # noqa: BLE001 - whatever it is, the page counts it
        said = traceback.format_exc()
        return {**about, "named": "nothing", "is_named": False, "holds": False, "crash": said}


if __name__ == "__main__":
    main()
