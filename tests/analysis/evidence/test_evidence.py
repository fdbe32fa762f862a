"""What an answer may call itself: every rule of the status, and the line that names the pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.accuracy.error_table import error_table
from foretrace.analysis.evidence.evidence import (
    ELSEWHERE,
    UNVALIDATED,
    VALIDATED,
    Evidence,
    best_status,
    judge,
    list_tested,
    worst_of,
)
from foretrace.analysis.evidence.validated_errors import load_table
from foretrace.analysis.evidence.validation_scope import Place
from foretrace.analysis.prediction import predict
from foretrace.tracer.trace import Device
from foretrace.transforms.registry import TRANSFORMS
from tests.support.jobs.gradients import cpu_job, gpu_job
from tests.support.measured.pairs import pair

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

AMPERE = Place("gpu", "NVIDIA Ampere", regime="device-bound", attention="flash2")


def evidence(name: str, *, place: Place = AMPERE, **counts: Any) -> dict[str, Any]:
    """Return a table in which three pairs, unless told otherwise, tested *name* at *place*."""
    row = {**place._asdict(), "source": "rule", "untuned": 3, "tuned": 0, **counts}
    return {"evidence": {name: [row]}}


def status(table: dict[str, Any], place: Place, name: str = "amp") -> str:
    """Return what an answer to *name* at *place* may call itself."""
    return judge([(name, "rule")], place, table).status


def test_untuned_pairs_at_the_same_kind_of_place_validate() -> None:
    """Vendor and generation, a step, its pace, its attention: all alike."""
    assert status(evidence("amp"), AMPERE) == VALIDATED


@pytest.mark.parametrize(
    "asked",
    [
        AMPERE._replace(hardware="NVIDIA Blackwell"),
        AMPERE._replace(hardware="NVIDIA Volta to NVIDIA Ampere"),
        AMPERE._replace(hardware="AMD CDNA 3"),
        AMPERE._replace(regime="host-bound"),
        AMPERE._replace(regime="device-bound, then host-bound"),
        AMPERE._replace(attention="flash3"),
    ],
)
def test_pairs_of_another_place_only_say_tested_elsewhere(asked: Place) -> None:
    """Another generation, vendor, pace, library of attention."""
    found = judge([("amp", "rule")], asked, evidence("amp"))

    assert found == Evidence(
        ELSEWHERE,
        ("amp",),
        ("amp: elsewhere 3 pairs, NVIDIA Ampere, device-bound, attention flash2, not tuned on",),
    )


def test_instructions_tell_cpus_apart() -> None:
    """What a CPU with products in 16 bits showed says nothing of one without."""
    wide = Place("cpu", "AMD CPU with 16-bit products")
    narrow = wide._replace(hardware="AMD CPU without 16-bit products")

    assert status(evidence("amp", place=wide), wide) == VALIDATED
    assert status(evidence("amp", place=wide), narrow) == ELSEWHERE


def test_pairs_that_were_tuned_on_validate_nothing() -> None:
    """However many there are; the line says so."""
    found = judge([("amp", "rule")], AMPERE, evidence("amp", untuned=0, tuned=9))

    assert found.status == UNVALIDATED
    assert found.lines == ("amp: 9 pairs, NVIDIA Ampere, device-bound, attention flash2, tuned on",)


def test_one_pair_validates_nothing() -> None:
    """It may be luck."""
    assert status(evidence("amp", untuned=1), AMPERE) == UNVALIDATED


@pytest.mark.parametrize("measure", ["kernels", "optimizer"])
def test_a_part_of_a_step_is_no_step(measure: str) -> None:
    """Kernel time that agrees says nothing about a host that sets the pace."""
    table = evidence("amp", place=AMPERE._replace(measure=measure))

    assert status(table, AMPERE) == UNVALIDATED
    assert "only, device-bound" in judge([("amp", "rule")], AMPERE, table).lines[0]
    assert best_status(list_tested("amp", "", table), "amp", "gpu") == UNVALIDATED


def test_a_cpu_tells_nothing_of_a_gpu() -> None:
    """They have rules of their own, so one is not even a test elsewhere of the other."""
    table = evidence("amp", place=Place("cpu", "AMD CPU with 16-bit products"))

    assert judge([("amp", "rule")], AMPERE, table).lines == ("amp: no pair",)


def test_pairs_here_and_elsewhere_stand_in_one_line() -> None:
    """Those that were tuned on here, and untuned ones of another generation."""
    hopper = AMPERE._replace(hardware="NVIDIA Hopper", attention="")
    table = evidence("amp", untuned=0, tuned=2)
    table["evidence"]["amp"] += evidence("amp", place=hopper)["evidence"]["amp"]

    found = judge([("amp", "rule")], AMPERE._replace(attention=""), table)
    (line,) = found.lines

    assert found.status == ELSEWHERE
    assert line.startswith("amp: 2 pairs, NVIDIA Ampere, device-bound, attention flash2, tuned on;")
    assert line.endswith("; elsewhere 3 pairs, NVIDIA Hopper, device-bound, not tuned on")


def test_attention_matters_to_what_depends_on_it() -> None:
    """A loader does not care which library runs attention, nor does a job without any."""
    other = AMPERE._replace(attention="flash1")

    assert status(evidence("dataloader"), other, "dataloader") == VALIDATED
    assert status(evidence("amp"), AMPERE._replace(attention="")) == VALIDATED


def test_workers_are_told_apart_by_their_network() -> None:
    """Pairs of one worker tell of a job with several; those of several only of their network."""
    slow = AMPERE._replace(workers="one worker before, A100, slingshot")
    fast = AMPERE._replace(workers="one worker before, A100, one machine")

    assert status(evidence("ddp", place=slow), slow, "ddp") == VALIDATED
    assert status(evidence("ddp", place=slow), fast, "ddp") == ELSEWHERE
    assert status(evidence("amp"), fast) == VALIDATED


def test_timed_operators_are_tested_apart_from_rules() -> None:
    """Where no pair has them, what rules showed holds."""
    table = evidence("amp", source="measured")

    assert judge([("amp", "measured")], AMPERE, table).status == VALIDATED
    assert judge([("amp", "rule")], AMPERE, table).status == UNVALIDATED
    assert judge([("amp", "measured")], AMPERE, evidence("amp")).status == VALIDATED


def test_a_scenario_is_no_better_than_its_worst_what_if() -> None:
    """One that nothing tested makes the answer unvalidated, and is named."""
    found = judge([("amp", "rule"), ("magic", "rule")], AMPERE, evidence("amp"))

    assert (found.status, found.untested) == (UNVALIDATED, ("magic",))
    assert found.lines[1] == "magic: no pair"
    assert worst_of([]) == VALIDATED


def test_held_out_pairs_are_evidence_and_tuned_ones_are_counted_apart() -> None:
    """What is no part of the errors is the best evidence there is; noise is none."""
    rows = [
        pair("a", 0.1, place=AMPERE, held_out=True),
        pair("b", 0.1, place=AMPERE, tuned_on=True),
        pair("c", 0.1, place=AMPERE, noise=0.5),
    ]

    assert error_table(rows)["evidence"] == {
        "amp": [{**AMPERE._asdict(), "source": "rule", "untuned": 1, "tuned": 1}]
    }


def on(graph: Graph, device: str) -> Graph:
    """Return *graph* as recorded on *device*."""
    return replace(graph, meta=replace(graph.meta, devices=(Device(0, device),)))


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_no_answer_on_another_generation_is_validated_by_the_shipped_table(name: str) -> None:
    """Whatever was measured on Volta, Ampere, Hopper and CDNA 3 does not vouch for Blackwell."""
    place = Place("gpu", "NVIDIA Blackwell")
    regimes = ("device-bound", "host-bound")

    for source in ("rule", "measured"):
        for regime in regimes:
            there = place._replace(regime=regime)
            assert judge([(name, source)], there, load_table()).status != VALIDATED


@pytest.mark.parametrize("device", ["NVIDIA B200", "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB"])
def test_a_move_to_another_gpu_is_never_validated(device: str) -> None:
    """Only kernel times of such moves were measured."""
    found = predict(on(gpu_job(), "NVIDIA A100-SXM4-40GB"), f'device(name="{device.split()[1]}")')

    assert found.status != VALIDATED
    assert "Ampere to" in str(found.place)


def test_every_output_is_told_the_place() -> None:
    """A CPU that did not say its instructions is none that pairs were measured on."""
    found = predict(cpu_job(), "gradient_accumulation(k=2)")

    assert found.place is not None
    assert found.place.hardware == "CPU of unknown instructions"
    assert found.status != VALIDATED
    assert found.evidence[0].startswith("gradient_accumulation: ")
