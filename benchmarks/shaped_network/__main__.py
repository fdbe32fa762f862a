"""``python -m benchmarks.shaped_network``: distributed training, measured over shaped links.

Needs Linux, root, torch and the standard library.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.shaped_network.campaign import COMMAND, record_network
from benchmarks.shaped_network.plan import draw_groups
from foretrace.cli.record_pairs import Parser, run_campaign, split_names

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Measure distributed training over shaped links as *arguments* say; return the exit code."""
    options = make_parser().parse_args(list(arguments))

    def record() -> None:
        groups = draw_groups(options.drawn, options.seed) if options.drawn else None
        record_network(
            options.models,
            options.schemes,
            minutes=options.minutes,
            out=options.out,
            groups=groups,
        )

    return run_campaign(record, options)


def make_parser() -> argparse.ArgumentParser:
    """Return what reads the options."""
    parser = Parser(
        prog=COMMAND,
        description="Measure distributed training on this machine over links shaped with tc; "
        "needs Linux and root.",
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="time budget (default 20)")
    parser.add_argument("--out", type=Path, default=Path("network"), help="folder for the archive")
    parser.add_argument("--drawn", type=int, default=0, help="so many models drawn by --seed")
    parser.add_argument("--seed", type=int, default=0, help="of models that are drawn (default 0)")
    parser.add_argument("--models", type=split_names, help="comma-separated; default: all")
    parser.add_argument("--schemes", type=split_names, help="comma-separated; default: all")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
