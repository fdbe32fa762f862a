"""What notebooks show of a trace, a graph, a timeline and a prediction."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from foretrace.analysis.prediction import predict
from foretrace.errors import ForetraceError
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.report.plot import figure
from foretrace.tracer.trace import EVENT_COLUMNS, Device, Trace, TraceMeta
from foretrace.transforms.scenario import parse_scenario
from foretrace.util.html_card import card
from foretrace.util.schema import table

META = TraceMeta(format="kineto", source="<job>.json", devices=(Device(0, "A&100"),))
GRAPH = literal(
    [("a", "host", 0, 2_000_000, None), ("b", "kernel", 1, 8_000_000, None)],
    [(0, 1, "launch")],
    wrap=True,
    meta=META,
)


def rows(html: str) -> dict[str, str]:
    """Return heading → text of a card, which must be well-formed."""
    tree = ET.fromstring(re.sub("&nbsp;", " ", html))  # noqa: S314 - our own
    return {
        "".join(row[0].itertext()): "".join(row[1].itertext()).strip() for row in tree.iter("tr")
    }


def test_a_trace_says_where_it_is_from() -> None:
    """Names are escaped; unknown is "unknown"."""
    events = table(EVENT_COLUMNS, {"kind": ["op", "op", "kernel"]}, 3)
    shown = rows(Trace(events, META)._repr_html_())

    assert shown["source"] == "<job>.json"
    assert shown["devices"] == "A&100"
    assert shown["framework"] == "unknown"
    assert (shown["op events"], shown["kernel events"]) == ("2", "1")


def test_a_graph_says_what_a_step_works() -> None:
    """Work per step by kind of task."""
    shown = rows(GRAPH._repr_html_())

    assert shown["tasks"] == "2"
    assert shown["kernel, work of a step"] == "8.00 ms"


def test_a_timeline_says_what_sets_the_pace() -> None:
    """The step and its critical path."""
    shown = rows(replay(GRAPH)._repr_html_())

    assert shown["step, ms"] == "8.00"
    assert shown["set by"] == "device"
    assert shown["kernel, on the path"] == "8.00 ms"
    assert shown["samples per second"] == "unknown"


def test_a_prediction_says_how_sure_it_is() -> None:
    """Step, interval and status; both critical paths."""
    found = predict(
        replace(GRAPH, measured_step_ns=8e6), parse_scenario(["faster_kernels(speedup=4)"])
    )
    shown = rows(found._repr_html_())

    assert shown["predicted step, ms"] == "2.00"
    assert shown["interval, ms"].endswith(f"({found.status})")
    assert shown["kernel, before and after"].startswith("8.00 ms")


def test_more_bars_than_fit_are_counted() -> None:
    """A card stays a card."""
    shown = rows(card("t", {}, {str(n): (1.0,) for n in range(15)}))

    assert len(shown) == 13
    assert "and 3 more" in shown


def test_a_prediction_is_drawn_with_two_bars_per_cause() -> None:
    """The longest cause before the change is on top; the title has the interval."""
    pytest.importorskip("matplotlib")
    found = predict(GRAPH, parse_scenario(["faster_kernels(speedup=2)"]))
    (axes,) = figure(found).axes

    causes = [label.get_text() for label in axes.get_yticklabels()]
    bars = [patch.get_width() for patch in axes.patches]
    assert causes[-1] == "kernel"
    assert len(bars) == 2 * len(causes)
    assert bars[len(causes) - 1] == 8.0
    assert bars[-1] == 4.0
    assert "10 → 5 ms (3.996 to 6.256, unvalidated)" in axes.get_title(loc="left")


def test_what_has_no_picture_is_refused() -> None:
    """An error that names it."""
    with pytest.raises(ForetraceError, match="no picture of a str"):
        figure("text")
