"""Advice, explanations and sensitivities on small jobs whose answers are known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.advise import advise
from foretrace.analysis.candidates import CANDIDATES, NEEDS_A_FIGURE, list_candidates
from foretrace.analysis.explain import CAUSES, KIND_CAUSES, WAIT_CAUSES, explain
from foretrace.analysis.prediction import predict
from foretrace.analysis.sensitivity import sensitivity
from foretrace.cli import app as cli
from foretrace.errors import ForetraceError, TransformError
from foretrace.graph.literal import literal
from foretrace.graph.model import TASK_KINDS
from foretrace.replaying.critical_path import REASONS, WORK
from foretrace.report.forms import as_text
from foretrace.report.plot import check_plot, draw
from foretrace.transforms.registry import TRANSFORMS
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs.simple import cpu_job, gpu_job
from tests.support.recordings.kineto import write_small_trace

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.graph.model import Graph


def host_and_device(host: int, device: int) -> Graph:
    """Return a launch of *host* ns and a gemm of *device* ns per step, free of each other."""
    return literal(
        [("launch", "launch", 0, host, "forward"), ("sgemm", "kernel", 1, device, "forward")],
        [(0, 1, "launch")],
        wrap=True,
        measured_step_ns=2.0 * max(host, device),
    )


# --- advise ------------------------------------------------------------------------------------


def test_advice_is_ranked_by_samples_per_second() -> None:
    """The best comes first, and each number is that of `predict`."""
    graph = gpu_job(steps=3)
    found = advise(graph)
    gains = [each.gain for each in found.single]

    assert gains == sorted(gains, reverse=True)
    assert len(gains) > 3
    for each in found.single:
        (text,) = each.prediction.scenario
        assert each.prediction == predict(graph, parse_scenario([text]))


def test_a_bigger_batch_is_ranked_by_its_throughput() -> None:
    """A step of twice the samples that takes twice as long gains nothing."""
    found = advise(gpu_job(steps=3, work=10_000_000))
    (batch,) = (a for a in found.single if a.prediction.scenario[0].startswith("batch_size"))

    assert batch.prediction.predicted_ns > 1.5 * batch.prediction.measured.step_ns
    assert 0.9 < batch.gain < 1.3


def test_combinations_are_replayed_in_the_order_of_the_table() -> None:
    """Each is what `predict` says of the scenario, not a product of gains."""
    graph = gpu_job(steps=3)
    order = [candidate.name for candidate in CANDIDATES]
    found = advise(graph)

    assert found.combined
    for each in found.combined:
        scenario = parse_scenario(each.prediction.scenario)
        assert each.prediction == predict(graph, scenario)
        places = [order.index(what_if.name) for what_if in scenario]
        assert places == sorted(set(places))


def test_what_does_not_apply_says_why() -> None:
    """Every candidate is either advice or stands with its reason."""
    found = advise(gpu_job())
    named = {each.prediction.scenario[0].split("(")[0] for each in found.single}
    refused = {text.split("(")[0] for text, _ in found.inapplicable}

    assert named | refused == {candidate.name for candidate in list_candidates()}
    assert all(reason for _, reason in found.inapplicable)


def test_a_job_on_a_cpu_gets_advice_too() -> None:
    """No device, no kernels: what changes host work still counts."""
    found = advise(cpu_job())

    assert any(each.prediction.scenario[0].startswith("amp") for each in found.single)


def test_every_transform_is_a_candidate_or_needs_a_figure() -> None:
    """A new what-if is tried with its defaults, or must be put on one of the two lists."""
    tried = {candidate.name for candidate in list_candidates()}

    assert tried | set(NEEDS_A_FIGURE) >= set(TRANSFORMS)


def test_what_makes_all_advice_doubtful_is_said_once() -> None:
    """One step may hold work that is never repeated; an unknown batch is doubled blindly."""
    unknown = replace(gpu_job(steps=1), meta=replace(gpu_job().meta, batch_size=None))
    doubts = [text.split(":")[0] for text in advise(unknown).warnings[-2:]]

    assert doubts == ["only one step was recorded", "the trace does not say its batch size"]
    assert not any("only one step" in text for text in advise(gpu_job(steps=2)).warnings)


def test_what_saves_memory_is_no_part_of_a_combination() -> None:
    """Accumulation and checkpoints are listed with what they cost."""
    found = advise(gpu_job(steps=3))
    saving = [each.prediction.scenario[0] for each in found.single if each.saves == "memory"]

    assert any(text.startswith("gradient_accumulation") for text in saving)
    assert not any(text in each.prediction.scenario for each in found.combined for text in saving)


# --- explain -----------------------------------------------------------------------------------


def test_a_gain_ends_where_the_host_begins() -> None:
    """Kernels ten times as fast: from 100 to 40, and no cost of theirs would bring more."""
    found = explain(host_and_device(40, 100), parse_scenario(["faster_kernels(speedup=10)"]))

    assert found.prediction.replayed_after_ns == found.bound_ns == 40
    assert (found.saved_ns, found.added_ns) == (90, 0)
    assert found.limits == ("device", "host")
    assert [(s.part, s.work_ns, s.path_ns) for s in found.causes] == [
        ("host", (40, 40), (0, 40)),
        ("gemm", (100, 10), (100, 0)),
    ]


def test_work_off_the_path_gains_nothing() -> None:
    """The host's launch hides behind the kernel."""
    found = explain(host_and_device(40, 100), parse_scenario(["faster_host(speedup=4)"]))

    assert found.prediction.speedup == 1
    assert found.bound_ns == 100
    assert all(shift.moved_ns == 0 for shift in found.causes)


def test_parts_add_up_to_the_replayed_step() -> None:
    """By cause, by phase and by module, before and after."""
    found = explain(gpu_job(), parse_scenario(["amp"]))
    steps = found.prediction.replayed_before_ns, found.prediction.replayed_after_ns

    for parts in (found.causes, found.phases, found.modules):
        for side, step in enumerate(steps):
            assert sum(shift.path_ns[side] for shift in parts) == pytest.approx(step)


def test_every_kind_and_reason_has_a_cause() -> None:
    """Nothing on a path is without a name."""
    assert set(KIND_CAUSES) <= set(TASK_KINDS)
    assert set(WAIT_CAUSES) == set(REASONS) - {REASONS[WORK]}
    assert "host" in CAUSES


# --- sensitivity -------------------------------------------------------------------------------


def test_curves_bend_where_the_other_lane_takes_over() -> None:
    """The device from 100 down to the host's 40, the host not at all; on the measured scale."""
    found = sensitivity(host_and_device(40, 100), [50, 75])
    steps = {(curve.of, curve.part): curve.step_ns for curve in found.curves}

    assert steps["lane", "device"] == steps["kernels", "gemm"] == (100, 80)
    assert steps["lane", "host"] == steps["phase", "forward, host"] == (200, 200)
    assert found.curves[0].part in ("device", "gemm")


def test_untraced_host_time_belongs_to_the_host() -> None:
    """Lags of host threads shrink with it."""
    graph = literal([("a", "host", 0, 10, None)] * 2, lag_ns=15, wrap=True, measured_step_ns=50)
    (host,) = (c for c in sensitivity(graph, [100]).curves if c.part == "host")

    assert (host.work_ns, host.step_ns) == (50, (0,))


@pytest.mark.parametrize("percents", [[], [0], [101], [float("nan")]])
def test_percents_out_of_range_are_refused(percents: list[float]) -> None:
    """A part cannot take less than no time."""
    with pytest.raises(TransformError, match="percents"):
        sensitivity(host_and_device(1, 2), percents)


# --- reports and plots -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "lead", "keys"),
    [
        (["advise", "TRACE"], "What to try", {"advice", "combinations", "inapplicable"}),
        (["explain", "TRACE", "faster_host(speedup=2)"], "Why", {"bound_step_ms", "causes"}),
        (["sensitivity", "TRACE"], "Step time if", {"parts", "less_time_percent"}),
    ],
)
def test_commands_print_text_and_json(
    command: list[str],
    lead: str,
    keys: set[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Text begins with what it is about; the JSON is one object with stable keys."""
    trace = str(write_small_trace(tmp_path))
    arguments = [trace if word == "TRACE" else word for word in command]

    assert cli.run(arguments) == 0
    assert capsys.readouterr().out.startswith(lead)

    assert cli.run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert keys | {"measured_step_ms"} <= set(found)


def test_a_pace_that_stays_is_said_once() -> None:
    """The device sets it before and after, or hands over to the host."""
    texts = {
        "faster_kernels(speedup=2)": "device, before and after",
        "faster_kernels(speedup=10)": "device, then by host",
    }
    for text, pace in texts.items():
        shown = as_text(explain(host_and_device(40, 100), parse_scenario([text])))
        assert re.search(rf"  pace set by +{pace}\n", shown)


@pytest.mark.parametrize(
    ("suffix", "begin"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("html", b"<!doctype")]
)
def test_curves_are_drawn(suffix: str, begin: bytes, tmp_path: Path) -> None:
    """A picture in any of the formats, the same bytes each time; names of parts are escaped."""
    pytest.importorskip("matplotlib", reason="the optional extra plot is not installed")
    found = sensitivity(gpu_job())
    one, other = tmp_path / f"one.{suffix}", tmp_path / f"other.{suffix}"
    draw(found, one)
    draw(found, other)

    assert one.read_bytes().startswith(begin)
    assert one.read_bytes() == other.read_bytes()


def test_other_formats_are_refused(tmp_path: Path) -> None:
    """Before anything is replayed."""
    with pytest.raises(ForetraceError, match=r"a plot is written to \.html, \.svg, \.png"):
        check_plot(tmp_path / "curves.gif")
