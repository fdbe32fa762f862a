"""``foretrace record-network``: its options; needs the standard library and torch, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli.record_pairs import Parser, names, recorded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Measure distributed training over shaped links as *arguments* say; return the exit code."""
    options = _parser().parse_args(list(arguments))

    def record() -> None:
        from foretrace.tracer.lab.network.campaign import record_network

        record_network(options.models, options.schemes, minutes=options.minutes, out=options.out)

    return recorded(record, options)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="foretrace record-network",
        description="Measure distributed training on this machine over links shaped with tc; "
        "needs Linux and root.",
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="time budget (default 20)")
    parser.add_argument("--out", type=Path, default=Path("network"), help="folder for the archive")
    parser.add_argument("--models", type=names, help="comma-separated; default: all")
    parser.add_argument("--schemes", type=names, help="comma-separated; default: all")
    return parser
