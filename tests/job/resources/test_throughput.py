"""Throughput over cores and cache: the closed forms, and which point is the cheapest."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from foretrace.errors import RefusedError
from foretrace.job.resources.file import Price
from foretrace.job.resources.grid import LoadingJob, LoadingMachine, choose_cheapest, survey
from foretrace.job.resources.throughput import Step, Storage, pace, recent_hits, synergy

STEP = Step(compute=0.02, prepare=0.03, batch_bytes=1e6, hand_over=0.002)
DISK = Storage(disk=25e6, reader=25e6)


def test_synergys_form_to_the_digit() -> None:
    """Fetching takes 7 s from memory and 143.36 s from disk, and hides in the epoch."""
    found = synergy(262.8, dataset_gb=140, fraction=0.5, memory_gb_per_s=10, disk_mb_per_s=500)

    assert found.fetch == pytest.approx(150.36)
    assert found.epoch == 262.8
    assert found.needed_mb_per_s == pytest.approx(280.2, abs=0.05)


def test_synergys_form_beyond_the_epoch() -> None:
    """A slower disk sets the pace; no disk helps where memory alone is too slow."""
    slow = synergy(262.8, dataset_gb=140, fraction=0.5, memory_gb_per_s=10, disk_mb_per_s=100)
    memory = synergy(5.0, dataset_gb=140, fraction=0.5, memory_gb_per_s=10, disk_mb_per_s=100)

    assert slow.epoch == pytest.approx(7 + 716.8)
    assert memory.needed_mb_per_s is None


@pytest.mark.parametrize(
    ("workers", "hits", "cores", "seconds", "limit"),
    [
        (0, 1.0, 2, 0.050, "one process"),
        (0, 0.5, 2, 0.070, "one process"),
        (1, 1.0, 2, 0.032, "workers"),
        (1, 0.0, 2, 0.072, "workers"),
        (2, 1.0, 2, 0.027, "cores"),
        (2, 0.0, 2, 0.040, "disk"),
        (2, 1.0, 4, 0.022, "training"),
        (3, 1.0, 1, 0.054, "cores"),
    ],
)
def test_the_slowest_part_sets_the_pace(
    workers: int, hits: float, cores: float, seconds: float, limit: str
) -> None:
    """Without workers all parts follow each other; with workers the slowest decides."""
    found = pace(STEP, DISK, workers=workers, hits=hits, cores=cores)

    assert found.seconds == pytest.approx(seconds)
    assert found.limit == limit


def test_a_reader_slower_than_the_disk_holds_its_worker_only() -> None:
    """Two workers read 25 MB/s each from a disk with more than both need."""
    found = pace(STEP, Storage(100e6, 25e6), workers=2, hits=0.0, cores=2)

    assert found.seconds == pytest.approx(0.036)
    assert found.limit == "workers"


def test_a_measured_step_goes_before_its_parts() -> None:
    """What is read from the disk still comes on top, or hides."""
    alone = pace(STEP, DISK, workers=0, hits=0.5, cores=2, measured=0.06)
    beside = pace(STEP, DISK, workers=2, hits=1.0, cores=2, measured=0.029)

    assert alone.seconds == pytest.approx(0.08)
    assert beside.seconds == pytest.approx(0.029)


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
def test_the_page_cache_formula_is_what_a_cache_of_recent_items_does(fraction: float) -> None:
    """A cache that drops the least recently used item, over epochs in random orders."""
    random, items = np.random.default_rng(0), 2000
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for epoch in range(6):
        for item in random.permutation(items).tolist():
            hits += item in cache and epoch > 0
            cache[item] = None
            cache.move_to_end(item)
            if len(cache) > fraction * items:
                cache.popitem(last=False)

    assert hits / (5 * items) == pytest.approx(recent_hits(fraction), abs=0.01)


def job(**more: object) -> LoadingJob:
    """Return a job of 1000 samples, 10 to a step, 1 MB a step."""
    given: dict[str, object] = {
        "compute": (0.02,), "prepare": (0.03,), "hand_over": 0.002, "threads": 1.0,
        "batch_size": 10, "samples": 1000, "dataset_gb": 0.1, "measured": {},
    }  # fmt: skip
    return LoadingJob(**{**given, **more})  # type: ignore[arg-type]


MACHINE = LoadingMachine(cores=2, effective_cores=2.0, storage=DISK, memory_gb_per_s=10.0)


def test_every_point_has_the_workers_that_suit_it() -> None:
    """With all data in memory one core gains nothing from workers; reading they do hide."""
    rows = survey(job(), MACHINE, cores=(1, 2), cache=(0.0, 1.0))

    assert [(r.cores, r.cache, r.workers, r.limit) for r in rows] == [
        (1, 0.0, 2, "cores"),
        (1, 1.0, 0, "one process"),
        (2, 0.0, 2, "disk"),
        (2, 1.0, 2, "cores"),
    ]
    assert rows[3].speed.value == pytest.approx(10 / 0.027)
    assert rows[3].epoch.value == pytest.approx(2.7)
    assert rows[2].synergy_speed == pytest.approx(1000 / (0.1 * 1024 / 25))


def test_cores_beyond_the_measured_ones_are_worth_as_much_as_those() -> None:
    """On a machine with one core nothing is known of a second: it counts in full."""
    assert LoadingMachine(4, 2.5, DISK, 10.0).effective(8) == 4.5
    assert LoadingMachine(1, 1.0, DISK, 10.0).effective(2) == 2.0


def test_given_workers_are_each_shown() -> None:
    """In the order given."""
    rows = survey(job(), MACHINE, cores=(2,), cache=(1.0,), workers=(2, 0))

    assert [row.workers for row in rows] == [2, 0]


def test_repeats_widen_the_interval() -> None:
    """Where preparing was measured three times and differed."""
    steady = survey(job(), MACHINE, cores=(2,), cache=(1.0,), workers=(1,))[0].speed
    varied = job(prepare=(0.02, 0.03, 0.04))
    wide = survey(varied, MACHINE, cores=(2,), cache=(1.0,), workers=(1,))[0].speed

    assert wide.high - wide.low > 1.5 * (steady.high - steady.low)


def test_a_page_cache_thrashes() -> None:
    """At half of the data it finds 15 %, not 50 %."""
    (row,) = survey(job(), MACHINE, cores=(2,), cache=(0.5,), workers=(0,))

    assert row.speed.value == pytest.approx(10 / 0.07)
    assert row.recent_speed == pytest.approx(10 / (0.05 + 0.04 * 0.84657), rel=1e-4)


def test_the_cheapest_point_near_the_best() -> None:
    """Prices decide; without them cores, then the cache."""
    grid = {"cores": (1, 2), "cache": (0.0, 0.5, 1.0)}
    price = Price(core=1.0, memory_gb=1000.0)
    priced = survey(job(), MACHINE, **grid, price=price)  # type: ignore[arg-type]
    free = survey(job(), MACHINE, **grid)  # type: ignore[arg-type]

    assert (choose_cheapest(priced, 0.05).cores, choose_cheapest(priced, 0.05).cache) == (2, 0.5)
    assert choose_cheapest(priced, 0.9).cache == 0.0
    assert (choose_cheapest(free, 0.0).cores, choose_cheapest(free, 0.0).cache) == (2, 0.5)
    assert choose_cheapest(priced, 0.05).epoch_price == pytest.approx((2 + 50) * 2.7 / 3600)


@pytest.mark.parametrize("within", [-0.1, 1.0])
def test_a_share_that_says_nothing_is_refused(within: float) -> None:
    """All points, or none, would be near the best."""
    rows = survey(job(), MACHINE, cores=(1,), cache=(1.0,))

    with pytest.raises(RefusedError, match="give 0 to 99"):
        choose_cheapest(rows, within)
