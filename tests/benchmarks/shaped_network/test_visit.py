"""Cells before they are visited."""

from __future__ import annotations

from benchmarks.shaped_network.plan import Group, Setup
from benchmarks.shaped_network.visit import cells_of


def test_a_setup_has_a_cell_per_link_speed() -> None:
    """Each knows its scheme, options, racks and recording, and has no run yet."""
    setup = Setup("fp16", "ddp", (300, None), {"cap_mb": 25, "compression": "fp16"})
    shaped, unshaped = cells_of(Group("gpt", 2, (setup,)), setup)

    assert shaped.name == "fp16 gpt x2 cap_mb=25 compression=fp16 300mbit"
    assert unshaped.name == "fp16 gpt x2 cap_mb=25 compression=fp16 unshaped"
    assert (shaped.rate_mbit, unshaped.rate_mbit) == (300, None)
    assert (shaped.racks, shaped.uplink_mbit, shaped.runs, shaped.job) == (
        (0, 0),
        None,
        (),
        "gpt-x2",
    )


def test_racks_and_ingress_are_part_of_the_name() -> None:
    """The same training over an uplink, or with shaped arrivals, is another cell."""
    setup = Setup("ddp", "ddp", (1000,), ingress=True)
    (found,) = cells_of(Group("gpt", 4, (setup,), racks=(0, 1, 0, 1)), setup)

    assert found.name == "ddp gpt x4 racks=0101 ingress=True 1000mbit"
    assert (found.uplink_mbit, found.options) == (300, {"ingress": True})


def test_a_collective_alone_has_no_job() -> None:
    """Also where the processes have one."""
    setup = Setup("send", "sweep", (300,), {"bytes": 4096})
    (found,) = cells_of(Group("gpt", 2, (setup,)), setup)

    assert (found.name, found.model, found.job) == ("send x2 bytes=4096 300mbit", None, None)
