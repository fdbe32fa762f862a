"""The list of jobs: read, written, and what is measured of each."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.truth.nets_listed import LOOPS, VISION
from benchmarks.truth.plain_plan import seconds_of, steps_a_turn, turns
from benchmarks.truth.spec import (
    BASE,
    DrawnJob,
    Side,
    Sizes,
    find_job,
    from_json,
    read_jobs,
    sides_of,
    to_json,
    write_jobs,
)
from foretrace.transforms.scenario import parse_scenario

if TYPE_CHECKING:
    from pathlib import Path

JOB = DrawnJob(
    "moe",
    "loop",
    "moe",
    held_out=True,
    threads=1,
    batch_size=8,
    sizes=Sizes(32, 2, 16, {"seconds": 0.1}),
    blocks=r"blocks\.\d+",
    removed="blocks.1",
    workers=2,
    load_us=100,
    load_rounds=3,
    changes=("batch_size", "remove_modules", "activation_checkpoint", "amp+batch_size"),
)


def test_jobs_survive_file_and_pipe(tmp_path: Path) -> None:
    """What is written is read again, backslashes and nested sizes included."""
    write_jobs(tmp_path / "jobs.tsv", [JOB], ["drawn by hand"])
    assert read_jobs(tmp_path / "jobs.tsv") == [JOB]
    assert find_job("moe", tmp_path / "jobs.tsv") == JOB
    assert from_json(to_json(JOB)) == JOB


def test_each_change_is_a_side_with_what_ifs() -> None:
    """A change says what is set and what predicts it; two at once are set both."""
    base, larger, without, _, both = sides_of(JOB)
    assert base == Side(BASE)
    assert larger == Side("batch_size", batch_factor=2, what_ifs=("batch_size(n=16)",))
    assert without.without
    assert (both.amp, both.batch_factor) == (True, 2)
    assert both.what_ifs == ('amp(dtype="bf16")', "batch_size(n=16)")


def test_patterns_reach_the_what_ifs_whole() -> None:
    """A regular expression is parsed as it was drawn."""
    sides = {side.name: side for side in sides_of(JOB)}
    (found,) = parse_scenario(list(sides["activation_checkpoint"].what_ifs))
    assert found.parameters == {"modules": r"blocks\.\d+"}
    (found,) = parse_scenario(list(sides["remove_modules"].what_ifs))
    assert found.parameters == {"pattern": r"blocks\.1"}


def test_the_list_is_wide() -> None:
    """Sixty jobs of forty architectures, all families, a third of the architectures held out."""
    jobs = read_jobs()
    held_out = {job.architecture: job.held_out for job in jobs}
    families = Counter(family for _, family in {(j.architecture, j.family) for j in jobs})
    assert len(jobs) >= 60
    assert len({job.name for job in jobs}) == len(jobs)
    assert len(held_out) >= 40
    assert all(held_out[job.architecture] == job.held_out for job in jobs)
    assert 0.28 <= sum(held_out.values()) / len(held_out) <= 0.38
    assert set(families) == {"transformers", "vision", "loop"}
    assert families["transformers"] >= 20
    assert {job.threads for job in jobs} == {1, 2}


def test_the_campaign_fits_its_time() -> None:
    """All jobs together take less than a hundred minutes, by the estimate."""
    assert sum(map(seconds_of, read_jobs())) < 100 * 60


def test_every_what_if_of_the_list_can_be_asked() -> None:
    """Each scenario is one that the package understands."""
    for job in read_jobs():
        for side in sides_of(job):
            parse_scenario(list(side.what_ifs))


def test_listed_architectures_exist() -> None:
    """The names known without torch are those that can be built."""
    from benchmarks.truth.nets import loops, vision

    assert set(LOOPS) == set(loops.LOOPS)
    assert set(VISION) == set(vision.BODIES)


def test_turns_keep_the_base_near() -> None:
    """No side is further than three turns from the base."""
    order = turns(["base", *"abcdefg"], 0, "base")
    bases = [place for place, name in enumerate(order) if name == "base"]
    assert order[0] == order[-1] == "base"
    assert max(b - a for a, b in pairwise(bases)) <= 4
    assert steps_a_turn(10.0) == 1
