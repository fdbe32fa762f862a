"""Tries one drawn job in a process of its own: does it train, how long is a step, what can change.

Standard input has the job as JSON; the last line of standard output is what was found, as JSON.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import sys
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from benchmarks.truth.spec import BASE, DrawnJob, Side, from_json, sides_of
from benchmarks.truth.training import MODULES, Training, build

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_PARAMETERS = 30_000_000
MOST_BYTES = 6 << 30
STEPS, PATIENCE = 3, 1.0
STEP_SECONDS = (0.05, 0.5)
FEWEST, MOST, FITS = 2, 20_000, 6
NEAR = 0.25
TRIED = ("amp", "gradient_accumulation", "channels_last", "fused_optimizer")


def main() -> None:
    """Try the job that standard input names."""
    warnings.filterwarnings("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (4 * MOST_BYTES, 4 * MOST_BYTES))
    torch.set_num_threads(1)
    job = from_json(sys.stdin.read())
    sys.stdout.write(json.dumps(_try(job)) + "\n")


def _try(job: DrawnJob) -> dict[str, Any]:
    if job.family == "transformers":
        _require_small(job)
    job, seconds = fit_batch(job)
    training = build(job, Side(BASE))
    blocks, removed = _blocks(training.model), ""
    named = replace(job, blocks=blocks)
    works = [change for change in TRIED if _trains(replace(named, changes=(change,)))]
    if blocks and _trains(replace(named, changes=("activation_checkpoint",))):
        works.append("activation_checkpoint")
    for path in _entries(training.model, blocks) if blocks else ():
        if _trains(replace(named, removed=path, changes=("remove_modules",))):
            removed = path
            works.append("remove_modules")
            break
    return {
        "seconds": seconds,
        "batch_size": job.batch_size,
        "blocks": blocks,
        "removed": removed,
        "works": works,
        "images": _has_images(training),
    }


def fit_batch(job: DrawnJob) -> tuple[DrawnJob, float]:
    """Return *job* with as many samples as make a step of about its target, and that step in s."""
    target, samples = job.sizes.more["seconds"], FEWEST
    for _ in range(FITS):
        job = replace(job, batch_size=samples)
        seconds = _step_seconds(build(job, Side(BASE)))
        better = round(samples * min(max(target / seconds, 0.1), 20))
        is_near = abs(math.log(seconds / target)) < NEAR
        if is_near or (samples == FEWEST and better <= FEWEST) or not FEWEST <= better <= MOST:
            break
        samples = max(better, FEWEST)
    if not STEP_SECONDS[0] <= seconds <= STEP_SECONDS[1]:
        raise ValueError(f"{seconds:.3f} s a step with {job.batch_size} samples")
    return job, seconds


def _require_small(job: DrawnJob) -> None:
    """Refuse, before memory is taken, a type whose configuration could not be made small."""
    from importlib import import_module

    with torch.device("meta"):
        model = import_module(MODULES["transformers"]).network(job.architecture, job.sizes)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(f"{parameters:,} parameters even so")


def _step_seconds(training: Training) -> float:
    """Return the processor time of a step, which others on the machine change little."""
    run = training.run()
    run()
    times: list[float] = []
    while len(times) < STEPS and sum(times) < PATIENCE:
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    if not any(parameter.grad is not None for parameter in training.model.parameters()):
        raise ValueError("no parameter has a gradient")
    return min(times)


def _trains(job: DrawnJob) -> bool:
    """Tell whether the change of *job* can be made, and makes a step that learns something."""
    try:
        build(job, sides_of(job)[1]).run()()
    except Exception as error:  # noqa: BLE001 - whatever the network raises
        sys.stderr.write(f"{job.changes[0]}: {type(error).__name__}: {str(error)[:200]}\n")
        return False
    return True


def _blocks(model: nn.Module) -> str:
    """Return a regular expression for the entries of the longest list of alike modules."""
    found: dict[str, int] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential) and path.count(".") <= 5:  # noqa: PLR2004
            kinds = [type(each) for each in module if any(True for _ in each.parameters())]
            same = max((kinds.count(kind) for kind in kinds), default=0)
            leaves = [kind for kind in kinds if kind in (nn.Linear, nn.Conv2d, nn.Embedding)]
            if same > 1 and not leaves and len(kinds) == len(module):
                found[path] = same
    outermost = [p for p in found if not any(p.startswith(o + ".") for o in found if o != p)]
    if not outermost:
        return ""
    path = max(outermost, key=lambda each: found[each])
    return re.escape(path) + r"\.\d+" if path else r"\d+"


def _entries(model: nn.Module, blocks: str) -> Iterator[str]:
    paths = [path for path, _ in model.named_modules() if re.fullmatch(blocks, path)]
    return reversed(paths)


def _has_images(training: Training) -> bool:
    has_filters = any(isinstance(module, nn.Conv2d) for module in training.model.modules())
    return has_filters and any(part.dim() == 4 for part in training.batch)  # noqa: PLR2004


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
