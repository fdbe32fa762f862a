"""Train beside a loader with a throttled disk and a cache; measure steps and their parts.

Every item is compressed in a file. Reading is limited to a rate that all workers share; items in
the cache lie in memory and are not read. Out: one JSON object with the ``parts`` (measured alone:
training, preparing, taking over, effective cores) and the ``cells`` (cache x workers, measured
together).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import zlib
from collections import OrderedDict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

from foretrace.tracer.child_process import end_with
from foretrace.tracer.recording.effective_cores import effective_cores
from foretrace.tracer.step_stats import trimmed_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ITEMS = 1600


class Setting(NamedTuple):
    """Samples per step, pixels along an image, its bytes when compressed, and bytes per second."""

    batch: int
    side: int
    item_bytes: int
    disk: float
    channels: int


SETTINGS = {
    "even": Setting(batch=32, side=192, item_bytes=76_000, disk=75e6, channels=32),
    "slow-disk": Setting(batch=64, side=96, item_bytes=20_000, disk=30e6, channels=40),
}
FRACTIONS, WORKERS = (0.0, 0.35, 0.7, 1.0), (0, 1, 2)
RECENT = (0.35, 0.7)
"""Fractions that are measured with a cache of the least recently used items, too."""
STEPS, SETTLE = 90, 12


class Disk:
    """A file whose reading is limited to a rate, for all processes together."""

    def __init__(self, path: Path, setting: Setting) -> None:
        self.path, self.setting = path, setting
        self.is_free_at = multiprocessing.get_context("fork").Value("d", 0.0)

    def read(self, items: Sequence[int]) -> list[bytes]:
        """Return *items* when the disk would have delivered them."""
        if not items:
            return []
        busy = len(items) * self.setting.item_bytes / self.setting.disk
        with self.is_free_at:
            ready = max(time.monotonic(), self.is_free_at.value) + busy
            self.is_free_at.value = ready
        with self.path.open("rb") as file:
            contents = [self._item(file, item) for item in items]
        time.sleep(max(ready - time.monotonic(), 0))
        return contents

    def _item(self, file: Any, item: int) -> bytes:
        file.seek(item * self.setting.item_bytes)
        return file.read(self.setting.item_bytes)

    def kept(self, count: int) -> dict[int, bytes]:
        """Return the first *count* items at once."""
        with self.path.open("rb") as file:
            return {item: self._item(file, item) for item in range(count)}


class Images(Dataset):
    """Compressed images behind a cache: of fixed content, or of what was used last."""

    def __init__(self, disk: Disk, fraction: float, *, recent: bool = False) -> None:
        self.disk = disk
        self.room = round(fraction * ITEMS)
        self.recent = recent
        self.hits = self.asked = 0
        self.cache = OrderedDict(disk.kept(0 if recent else self.room))

    def __len__(self) -> int:
        """Return how many there are."""
        return ITEMS

    def __getitems__(self, items: list[int]) -> list[torch.Tensor]:
        """Return a batch: what is not cached is read in one go."""
        missing = [item for item in items if item not in self.cache]
        self.asked += len(items)
        self.hits += len(items) - len(missing)
        read = dict(zip(missing, self.disk.read(missing), strict=True))
        raw = [read[item] if item in read else self.cache[item] for item in items]
        if self.recent:
            self._remember(items, raw)
        return [prepared(content, self.disk.setting.side) for content in raw]

    def _remember(self, items: list[int], raw: list[bytes]) -> None:
        for item, content in zip(items, raw, strict=True):
            self.cache[item] = content
            self.cache.move_to_end(item)
        while len(self.cache) > self.room:
            self.cache.popitem(last=False)


class Endless(Sampler):
    """Every item once per epoch in a new order, one epoch after the other without a pause."""

    def __iter__(self) -> Iterator[int]:
        """Yield items for ever."""
        random = np.random.default_rng(0)
        while True:
            yield from random.permutation(ITEMS).tolist()


def write_items(path: Path, setting: Setting) -> None:
    """Write `ITEMS` images, compressed and padded."""
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(ITEMS):
            image = (random.normal(128, 6, (3, setting.side, setting.side))).astype(np.uint8)
            packed = zlib.compress(image.tobytes(), 1)
            assert len(packed) <= setting.item_bytes, len(packed)
            file.write(packed.ljust(setting.item_bytes, b"\0"))


def prepared(content: bytes, side: int) -> torch.Tensor:
    """Decompress an image, cut a part out and normalise it."""
    image = np.frombuffer(zlib.decompressobj().decompress(content), np.uint8).reshape(3, side, side)
    part = image[:, :: side // 32, :: side // 32].astype(np.float32)
    return torch.from_numpy((part - part.mean()) / part.std())


def training(setting: Setting) -> Callable[[torch.Tensor], None]:
    """Return a function that trains a small CNN on a batch."""
    wide = setting.channels
    layers = [nn.Conv2d(3, wide, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(wide, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(64 * 8 * 8, 10))
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    labels = torch.arange(setting.batch) % 10

    def step(images: torch.Tensor) -> None:
        sgd.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(images), labels).backward()
        sgd.step()

    return step


def batches(data: Dataset, size: int, workers: int) -> Iterator[torch.Tensor]:
    """Return an endless iterator over batches of *data*."""
    return iter(DataLoader(data, size, sampler=Endless(), num_workers=workers))


def step_seconds(train: Callable[[torch.Tensor], None], source: Any, settle: int) -> list[float]:
    """Return what each of `STEPS` steps took, fetching included, after *settle* more."""
    ends = []
    for _ in range(settle + STEPS):
        train(next(source))
        ends.append(time.perf_counter())
    return np.diff(ends[settle - 1 :]).tolist()


def parts(train: Callable[[torch.Tensor], None], disk: Disk) -> dict[str, Any]:
    """Measure each part of a step alone; times in seconds per batch."""
    data, size = Images(disk, 1.0), disk.setting.batch
    one = torch.stack(data.__getitems__(list(range(size))))
    fetched = batches(data, size, 0)
    constant = batches(Constant(one), size, 1)
    return {
        "compute": [_timed(lambda: train(one)) for _ in range(STEPS)],
        "prepare": [_timed(lambda: next(fetched)) for _ in range(STEPS)],
        "compute_beside": _beside(lambda: data.__getitems__(list(range(size))), lambda: train(one)),
        "handed_over": step_seconds(train, constant, SETTLE),
        "effective_cores": [
            effective_cores(2, seconds=0.6, work=work) for work in (None, lambda: train(one))
        ],
        "memory_bytes_per_second": _memory_rate(data),
    }


class Constant(Dataset):
    """The same batch again and again, at no cost but handing it over."""

    def __init__(self, batch: torch.Tensor) -> None:
        self.items = list(batch)

    def __len__(self) -> int:
        """Return as many as there are images."""
        return ITEMS

    def __getitems__(self, items: list[int]) -> list[torch.Tensor]:
        """Return the batch."""
        return self.items[: len(items)]


def _beside(other: Callable[[], object], call: Callable[[], object]) -> list[float]:
    """Return what each call takes while a second process repeats *other*."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_for_ever, args=(os.getpid(), other), daemon=True)
    process.start()
    seconds = [_timed(call) for _ in range(STEPS)]
    process.terminate()
    process.join()
    return seconds


def _for_ever(parent: int, call: Callable[[], object]) -> None:
    end_with(parent)
    while True:
        call()


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _memory_rate(data: Images) -> float:
    order = np.random.default_rng(1).permutation(ITEMS).tolist()
    taken = _timed(lambda: [bytearray(data.cache[item]) for item in order])
    return ITEMS * data.disk.setting.item_bytes / taken


def cell(train: Any, disk: Disk, fraction: float, workers: int, *, recent: bool) -> dict[str, Any]:
    """Measure training beside the loader."""
    data = Images(disk, fraction, recent=recent)
    size = disk.setting.batch
    settle = max(SETTLE, 4 * workers) + (ITEMS // size if recent else 0)
    seconds = step_seconds(train, batches(data, size, workers), settle)
    kind = "recent" if recent else "fixed"
    measured = {"cache": kind, "fraction": fraction, "workers": workers, "seconds": seconds}
    print(f"{kind} {fraction} x{workers}: {1e3 * fmean(seconds):.2f} ms", flush=True)
    return measured | ({"hit_rate": data.hits / data.asked} if workers == 0 else {})


def main() -> None:
    """Measure parts, all cells up and down, and parts again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--setting", choices=SETTINGS, default="even")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    setting = SETTINGS[chosen.setting]
    disk = Disk(chosen.out / "items.bin", setting)
    write_items(disk.path, setting)
    train = training(setting)
    wanted = [(f, w, False) for w in WORKERS for f in FRACTIONS] + [(f, 0, True) for f in RECENT]
    measured = [parts(train, disk)]
    cells = []
    for visit in (wanted, wanted[::-1]):
        cells += [cell(train, disk, f, w, recent=recent) for f, w, recent in visit]
        measured.append(parts(train, disk))
    disk.path.unlink()
    for each in measured:
        shown = {k: v if isinstance(v, float) else trimmed_mean(v) for k, v in each.items()}
        print(shown, each["effective_cores"], flush=True)
    facts = {"items": ITEMS, **setting._asdict()}
    text = json.dumps({**facts, "parts": measured, "cells": cells})
    (chosen.out / f"loading-{chosen.setting}.json").write_text(text)


if __name__ == "__main__":
    main()
