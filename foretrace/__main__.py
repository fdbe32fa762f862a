"""``python -m foretrace``: the command line, also on a machine that can only record.

Recording machines may have torch and nothing else of ours, so ``record-pairs`` must not need typer.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> int:
    """Run the command line and return its exit code."""
    if sys.argv[1:2] == ["record-pairs"]:
        from foretrace.cli.record_pairs import main as record_pairs

        return record_pairs(sys.argv[2:])
    if find_spec("typer") is None:
        sys.stderr.write(
            "foretrace: typer is not installed; only record-pairs works here, install foretrace "
            "for the rest\n"
        )
        return 1
    from foretrace.cli.app import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
