"""What each measured cell is predicted by: texts that a user could write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.accuracy.distributed.shaped_links import network_rows
from benchmarks.accuracy.distributed.shaped_scenarios import SCENARIOS, scenario_of
from benchmarks.shaped_network.cell_archive import Cell
from benchmarks.shaped_network.plan import PLAN
from benchmarks.shaped_network.visit import cells_of
from foretrace.transforms.scenario import parse_scenario
from tests.support.measured.cells import cell, run

LINKS = "cluster='shaped-links', network='300Mbps'"


def scenario(scheme: str, options: dict[str, Any], **settings: Any) -> tuple[str, ...]:
    """Return the scenario of a cell on two ranks at 300 Mbit/s."""
    measured = replace(cell(run()), scheme=scheme, options=options, **settings)
    return scenario_of(Cell(**vars(measured)))


@pytest.mark.parametrize(
    ("scheme", "options", "texts"),
    [
        ("ddp", {"cap_mb": 4}, (f"ddp(workers=2, bucket_cap_mb=4, {LINKS})",)),
        ("ddp", {"cap_mb": None}, (f"ddp(workers=2, {LINKS})",)),
        (
            "fp16",
            {"cap_mb": 25, "compression": "fp16"},
            (f"ddp(workers=2, bucket_cap_mb=25, compression='fp16', {LINKS})",),
        ),
        (
            "no_sync",
            {"cap_mb": 25, "accumulation": 4},
            ("gradient_accumulation(k=4)", f"ddp(workers=2, bucket_cap_mb=25, {LINKS})"),
        ),
        (
            "slow_rank",
            {"cap_mb": 25, "sleep_ms": 50},
            (f"ddp(workers=2, bucket_cap_mb=25, {LINKS})", "straggler(rank=1, delay_ms=50)"),
        ),
        ("fsdp", {}, (f"fsdp(workers=2, {LINKS})",)),
        (
            "parameter_server",
            {"mode": "bsp", "sleep_ms": 100, "ingress": True},
            (
                f"parameter_server(workers=2, mode='bsp', ingress=True, {LINKS})",
                "straggler(rank=1, delay_ms=100)",
            ),
        ),
    ],
)
def test_schemes_become_what_ifs(
    scheme: str, options: dict[str, Any], texts: tuple[str, ...]
) -> None:
    """The options of the run are parameters."""
    assert scenario(scheme, options) == texts


def test_a_pipeline_is_cut_where_it_was() -> None:
    """The cell says at which module."""
    options = {"micro_batches": 4, "schedule": "1f1b", "waits": False}

    (text,) = scenario("pipeline", options, facts={"cut": "layers.3"})

    assert text == (
        "pipeline(stages=2, micro_batches=4, schedule='1f1b', blocking=False, "
        f"cuts=['layers.3'], {LINKS})"
    )


def test_racks_are_another_placement() -> None:
    """Ranks in turn on two racks: devices 0 and 1 are in the first one."""
    first, second = scenario("ddp", {"cap_mb": 25}, racks=(0, 1, 0, 1), ranks=4, rate_mbit=1000)

    assert first == ("ddp(workers=4, bucket_cap_mb=25, cluster='shaped-racks', network='1000Mbps')")
    assert second == "placement(to=[0, 2, 1, 3])"


def test_an_unshaped_link_is_that_of_the_machine() -> None:
    """No rate is given."""
    assert scenario("ddp", {"cap_mb": 25}, rate_mbit=None) == (
        "ddp(workers=2, bucket_cap_mb=25, cluster='this-machine')",
    )


def test_every_planned_training_has_a_scenario() -> None:
    """And it can be read."""
    planned = [
        replace(found, facts={"cut": "layers.3"})
        for group in PLAN
        for setup in group.setups
        if setup.trains
        for found in cells_of(group, setup)
    ]

    assert {found.scheme for found in planned} == set(SCENARIOS)
    for found in planned:
        assert parse_scenario(scenario_of(Cell(**vars(found))))


def test_cells_that_train_nothing_are_no_rows() -> None:
    """Collectives alone are studied elsewhere."""
    sweep = replace(cell(run()), scheme="all_reduce", options={"bytes": 4096})

    assert network_rows([Cell(**vars(sweep))]) == ([], {})
