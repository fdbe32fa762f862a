"""``foretrace record-pairs``: its options; needs the standard library and torch, nothing else."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from foretrace.errors import ForetraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line here as everywhere."""

    def error(self, message: str) -> NoReturn:
        """End with *message* and exit code 2."""
        self.exit(2, f"foretrace: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str]) -> int:
    """Record before/after pairs as *arguments* say; return the exit code."""
    options = _parser().parse_args(list(arguments))

    def record() -> None:
        from foretrace.tracer.lab.pairs.record_pairs import record_pairs

        record_pairs(
            options.models,
            options.variants,
            minutes=options.minutes,
            cpu=options.cpu,
            out=options.out,
        )

    return run_campaign(record, options)


def run_campaign(record: Callable[[], None], options: argparse.Namespace) -> int:
    """Call *record*, turning what can go wrong into one line; return the exit code."""
    if not options.minutes > 0:  # NaN is not, either
        sys.stderr.write(f"foretrace: --minutes is {options.minutes:g}, expected more than 0\n")
        return 2
    try:
        record()
    except ForetraceError as error:
        sys.stderr.write(f"foretrace: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"foretrace: {error.filename or options.out}: {error.strerror}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("foretrace: interrupted\n")
        return 130
    except ModuleNotFoundError as error:
        sys.stderr.write(f"foretrace: recording needs {error.name}: pip install {error.name}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="foretrace record-pairs",
        description="Record measured before/after pairs over models and variants on this machine.",
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="time budget (default 8)")
    parser.add_argument("--cpu", action="store_true", help="small shapes on the CPU")
    parser.add_argument("--out", type=Path, default=Path("pairs"), help="folder for the archives")
    parser.add_argument("--models", type=split_names, help="comma-separated; default: all")
    parser.add_argument("--variants", type=split_names, help="comma-separated; default: all")
    return parser


def split_names(text: str) -> list[str]:
    """Return the names in a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]
