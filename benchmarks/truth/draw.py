"""``python -m benchmarks.truth.draw``: draw the jobs of the truth set anew, into ``jobs.tsv``.

What is drawn depends on the seed, the installed transformers and, where a step must be long
enough, on this machine. Nothing is measured yet, and no prediction made, when a third of the
architectures is drawn as held out.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.truth.campaign import plain_environment
from benchmarks.truth.nets_listed import LOOPS, VISION
from benchmarks.truth.spec import LIST, DrawnJob, Sizes, to_json, write_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SEED = 13
TYPES = 24
"""Architectures out of transformers' list."""
SECOND = 14
"""Architectures of which a second job is drawn."""
HELD_OUT = 1 / 3
STEP_SECONDS = (0.06, 0.3)
"""Steps are meant to take so long; the batch follows from it."""
TRIES = 2
TRIAL_SECONDS = 60
ROUND_SECONDS = 50e-6
"""Of `loading.work`."""
LOADING, ACCUMULATION, TWO_THREADS = 0.3, (2, 3, 4), 0.35
PAIRABLE = ("batch_size", "amp", "fused_optimizer", "channels_last")
RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "transformers": {"width": (64, 320), "depth": (2, 6), "length": (16, 128)},
    "vision": {"width": (16, 96), "depth": (2, 8), "length": (32, 96)},
    "loop": {"width": (16, 128), "depth": (2, 5), "length": (16, 64)},
}
WIDE: dict[str, dict[str, tuple[float, float]]] = {
    "reinforced": {"length": (16, 64)},
    "clipped": {"width": (96, 256)},
    "ctc": {"width": (48, 160)},
    "moe": {"width": (64, 256)},
    "averaged": {"width": (64, 256)},
}
SUMS_ONE_LOSS = "gradient_accumulation"
OWN_STEP = ("gan", "reinforced")
MOST_LOADED = 512


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, try, and write the list."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.draw", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=LIST)
    asked = parser.parse_args(arguments)
    jobs = draw(asked.seed, _run_trial)
    remark = (
        f"Drawn by `python -m benchmarks.truth.draw --seed {asked.seed}` with transformers "
        f"{version('transformers')}, torch {version('torch')}."
    )
    write_jobs(asked.out, jobs, [remark])
    counted = Counter(job.family for job in jobs)
    sys.stdout.write(f"wrote {len(jobs)} jobs to {asked.out}: {dict(counted)}\n")


def draw(seed: int, attempt: Callable[[DrawnJob], dict[str, Any] | None]) -> list[DrawnJob]:
    """Draw the jobs; *attempt* says of each what `trial` found, or nothing where it fails."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    chosen: list[list[DrawnJob]] = [
        _first(chance, "transformers", _types(chance), TYPES, attempt),
        _first(chance, "vision", ((name, "") for name in VISION), len(VISION), attempt),
        _first(chance, "loop", ((name, "") for name in LOOPS), len(LOOPS), attempt),
    ]
    held_out = {
        name
        for family in chosen
        for name in chance.sample([j.architecture for j in family], round(HELD_OUT * len(family)))
    }
    first = [job for family in chosen for job in family]
    second = []
    for job in chance.sample(first, min(SECOND, len(first))):
        again = draw_sized(chance, job.family, job.architecture, job.sizes.more, attempt)
        second += [replace(again, name=f"{job.name}-2")] if again else []
    jobs = sorted([*first, *second], key=lambda job: (job.family, job.name))
    return [replace(job, held_out=job.architecture in held_out) for job in jobs]


def _types(chance: random.Random) -> Iterator[tuple[str, str]]:
    """Yield types of model in random order, each with a random one of its tasks."""
    auto = import_module("transformers.models.auto.modeling_auto")
    tasks = import_module("benchmarks.truth.nets.pretrainable").TASKS
    names = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES
    for name in chance.sample(sorted(names), len(names)):
        fitting = [task for task, (listed, _) in tasks.items() if name in getattr(auto, listed)]
        if fitting:
            yield name, chance.choice(fitting)


def _first(
    chance: random.Random,
    family: str,
    candidates: Iterator[tuple[str, str]],
    many: int,
    attempt: Callable[[DrawnJob], dict[str, Any] | None],
) -> list[DrawnJob]:
    """Return a job each of the first *many* architectures that can be trained."""
    jobs: list[DrawnJob] = []
    while len(jobs) < many and (candidate := next(candidates, None)):
        more = {"task": candidate[1]} if candidate[1] else {}
        job = draw_sized(chance, family, candidate[0], more, attempt)
        jobs += [job] if job else []
    return jobs


def draw_sized(
    chance: random.Random,
    family: str,
    architecture: str,
    more: dict[str, Any],
    attempt: Callable[[DrawnJob], dict[str, Any] | None],
) -> DrawnJob | None:
    """Draw sizes until a step is as long as it should be; nothing where it cannot be trained."""
    ranges = {**RANGES[family], **WIDE.get(architecture, {})}
    for _ in range(TRIES):
        sizes = Sizes(
            width=32 * round(_between(chance, ranges["width"]) / 32) or 16,
            depth=round(_between(chance, ranges["depth"])),
            length=8 * max(round(_between(chance, ranges["length"]) / 8), 1),
            more={**more, "seconds": round(_between(chance, STEP_SECONDS), 3)},
        )
        job = DrawnJob(
            f"{architecture}-{more['task']}" if "task" in more else architecture,
            *(family, architecture, False, 1, 1, sizes),
            optimizer=chance.choice(("adam", "adamw", "adamw", "sgd", "adagrad")),
        )
        if found := attempt(job):
            return _complete(chance, replace(job, batch_size=found["batch_size"]), found)
    return None


def _between(chance: random.Random, ends: tuple[float, float]) -> float:
    return math.exp(chance.uniform(math.log(ends[0]), math.log(ends[1])))


def _complete(chance: random.Random, job: DrawnJob, found: dict[str, Any]) -> DrawnJob:
    """Draw what does not change how long a step is, and list what is measured."""
    threads = 2 if chance.random() < TWO_THREADS else 1
    loading = _draw_loading(chance, job, found["seconds"])
    works = ["batch_size", *found["works"]]
    if not found["images"] and "channels_last" in works:
        works.remove("channels_last")
    if job.architecture in OWN_STEP:
        works.remove(SUMS_ONE_LOSS)
    works += ["dataloader"] if loading else []
    works += ["cpu_cores"] if threads == 1 and not loading else []
    pairs = list(combinations([name for name in PAIRABLE if name in works], 2))
    works += ["+".join(chance.choice(pairs))] if pairs else []
    return replace(
        job,
        threads=threads,
        blocks=found["blocks"],
        removed=found["removed"],
        accumulation=chance.choice(ACCUMULATION),
        changes=tuple(works),
        **loading,
    )


def _draw_loading(chance: random.Random, job: DrawnJob, seconds: float) -> dict[str, Any]:
    """Draw a loader for some jobs: a fetch takes a part of a step, and some of it waits."""
    if chance.random() > LOADING or job.architecture in OWN_STEP:
        return {}
    sample = chance.uniform(0.1, 0.9) * seconds / job.batch_size
    waiting, workers = chance.uniform(0.0, 0.8), chance.choice((1, 2))
    if job.batch_size > MOST_LOADED:  # collating alone would take longer than a step
        return {}
    rounds = max(1, round(sample * (1 - waiting) / ROUND_SECONDS))
    return {"workers": workers, "load_us": round(1e6 * sample * waiting), "load_rounds": rounds}


def _run_trial(job: DrawnJob) -> dict[str, Any] | None:
    """Try *job* in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.truth.trial"]
    call = partial(subprocess.run, command, input=to_json(job), text=True, capture_output=True)
    try:
        done = call(env=plain_environment(1), timeout=TRIAL_SECONDS, check=False)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, json.JSONDecodeError):
        why = "" if "done" not in locals() else (done.stderr.splitlines() or ["?"])[-1]
        sys.stderr.write(f"{job.name}: no: {why[:150]}\n")
        return None
    sys.stderr.write(f"{job.name}: {found['seconds']:.3f} s, {', '.join(found['works'])}\n")
    return found


if __name__ == "__main__":
    main()
