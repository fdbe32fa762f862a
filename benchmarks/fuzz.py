"""``python -m benchmarks.fuzz``: thousands of hostile files, each of which must end well.

Mutants of the small files of tests/fuzz are read and asked; the outcome is an answer that can be or
one sentence, within 20 s and 2 GB. A mutant that ends otherwise is kept in the corpus, which the
test suite tries for ever after.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import sys
import time
import traceback
import warnings
from pathlib import Path

from tests.fuzz.judge import ViolationError, judge
from tests.fuzz.mutate import mutant
from tests.fuzz.seeds import seeds

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "fuzz" / "corpus"
KEPT_BYTES = 1 << 16
"""A larger mutant is named and not kept."""


def main(arguments: list[str] | None = None) -> int:
    """Judge the mutants asked for; return 1 if one ended badly."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz")
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first mutant")
    parser.add_argument("--kind", action="append", help="only these kinds of files")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    kinds = asked.kind or list(seeds())
    outcomes: collections.Counter[str] = collections.Counter()
    slowest, began = (0.0, ""), time.perf_counter()
    for seed in range(asked.seed, asked.seed + asked.mutants):
        kind = kinds[seed % len(kinds)]
        content = mutant(kind, seeds()[kind], random.Random(seed))  # noqa: S311
        started = time.perf_counter()
        try:
            outcomes[f"{kind} {judge(kind, content)}"] += 1
        except ViolationError as error:
            outcomes[f"{kind} violated"] += 1
            _keep(asked.corpus, kind, seed, content, error)
        slowest = max(slowest, (time.perf_counter() - started, f"{kind} {seed}"))
    for name, count in sorted(outcomes.items()):
        sys.stdout.write(f"{count:7,} {name}\n")
    took = time.perf_counter() - began
    violated = sum(count for name, count in outcomes.items() if name.endswith("violated"))
    sys.stdout.write(
        f"{asked.mutants:,} mutants in {took:.0f} s, {violated} ended badly; "
        f"the slowest took {slowest[0]:.1f} s ({slowest[1]})\n"
    )
    return int(violated > 0)


def _keep(corpus: Path, kind: str, seed: int, content: bytes, error: ViolationError) -> None:
    cause = error.__cause__ or error
    last = traceback.extract_tb(cause.__traceback__)[-1]
    sys.stdout.write(f"{kind} {seed}: {error} ({Path(last.filename).name}:{last.lineno})\n")
    sys.stdout.flush()
    if len(content) <= KEPT_BYTES:
        with contextlib.suppress(OSError):
            corpus.mkdir(parents=True, exist_ok=True)
            (corpus / f"{kind}.{seed}").write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
