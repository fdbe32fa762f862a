"""How many items a second ``foretrace batch`` predicts and keeps, on 1 and on 2 processes.

    python -m benchmarks.batch [TRACE] [--count N]

A study asks so many what-ifs of one recording. Counted is the whole command: workers that start,
the recording that each of them reads, and a file per result. The second figure of each line is
that of a run that finds every result of the first.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from foretrace.batch.run import run_batch

TRACE = Path("../shared/gpu-traces/hta/ddp_toy_mlp-rnn_v100_ws2_rank1.json.gz")
PATTERNS = (".*", "gemm", "elementwise", "reduce", "Memcpy|Memset")


def scenarios(count: int) -> list[str]:
    """Return *count* different what-ifs, the same ones every time."""
    draw = random.Random(7)  # noqa: S311  # no secret
    chosen = []
    for number in range(count):
        speedup = round(1.1 + number / 1_000, 3)
        pattern = draw.choice(PATTERNS)
        texts = [f"faster_host(speedup={speedup})"]
        texts += [f"faster_kernels(pattern={pattern!r}, speedup={speedup})"]
        chosen.append(draw.choice(texts))
    return chosen


def main() -> None:
    """Print items a second."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("trace", nargs="?", type=Path, default=TRACE)
    options.add_argument("--count", type=int, default=1_000)
    given = options.parse_args()
    if not given.trace.exists():
        print(f"{given.trace.name} is not here; give a recording as argument")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = folder / "study.toml"
        study.write_text(
            f"scenarios = {json.dumps(scenarios(given.count))}\n"
            f"[[trace]]\npath = {json.dumps(str(given.trace.resolve()))}\n",
            "utf-8",
        )
        for jobs in (1, 2):
            predicted = _items_a_second(study, folder / f"{jobs}", jobs)
            again = _items_a_second(study, folder / f"{jobs}", jobs)
            print(
                f"{given.count:,} items of {given.trace.name}, {jobs} processes: "
                f"{predicted:.1f} items/s, {again:,.0f} items/s where all are known"
            )


def _items_a_second(study: Path, out: Path, jobs: int) -> float:
    begin = time.perf_counter()
    results = run_batch(study, out, jobs=jobs)
    seconds = time.perf_counter() - begin
    assert not any(row.error for row in results.rows), "an item failed"
    return len(results.rows) / seconds


if __name__ == "__main__":
    main()
