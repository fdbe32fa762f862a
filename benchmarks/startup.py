"""How long the commands that do no work take, as ratios to a bare interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 9
COMMANDS = {
    "bare interpreter": ["-c", "pass"],
    "import foretrace": ["-c", "import foretrace"],
    "foretrace --help": ["-m", "foretrace", "--help"],
    "foretrace transforms": ["-m", "foretrace", "transforms"],
    "completing a what-if": ["-c", "from foretrace.cli.completion import what_ifs; what_ifs('')"],
}


def main() -> None:
    """Print the median of several runs of each command."""
    times = {name: median_seconds(arguments) for name, arguments in COMMANDS.items()}
    bare = times["bare interpreter"]
    for name, seconds in times.items():
        print(f"{name:24} {seconds * 1e3:8.0f} ms {seconds / bare:8.1f}x")


def median_seconds(arguments: list[str]) -> float:
    """Return the median wall time of ``python`` with *arguments*."""
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


if __name__ == "__main__":
    main()
