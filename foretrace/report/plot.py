"""Results in, a picture out: matplotlib draws it (the optional extra ``plot``)."""

from __future__ import annotations

import io
from functools import singledispatch
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from foretrace.analysis.prediction import Prediction
from foretrace.analysis.sensitivity import Sensitivity
from foretrace.errors import ForetraceError
from foretrace.report.number_format import NS_PER_MS
from foretrace.util.atomic_write import check_writable, write_atomically
from foretrace.util.short_name import short

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FORMATS = {".html": "svg", ".svg": "svg", ".png": "png"}
"""What matplotlib writes for each kind of file."""
PANELS = {"lane": "host and device", "kernels": "kernels", "phase": "phases", "module": "modules"}
MOST_CURVES = 8
"""Curves in one panel; those that gain least are left out."""
SHADES = ("#1b6ca8", "#d1495b", "#2e8b57", "#edae49", "#7b4fa3", "#00798c", "#8d6346", "#6c757d")


def check_plot(path: Path) -> None:
    """Refuse a plot that cannot be made, before the work for it is done.

    Raises
    ------
    ForetraceError
        The file's name ends in none of `FORMATS`, or matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise ForetraceError(f"{path}: a plot is written to {', '.join(FORMATS)}")
    _need_matplotlib()
    check_writable(path)


def _need_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise ForetraceError("drawing needs matplotlib: pip install 'foretrace[plot]'")


def draw(sensitivity: Sensitivity, path: Path) -> None:
    """Draw a panel of curves per kind of part and write it to *path*."""
    write_picture(path, "Step time if one part took less time", lambda: figure(sensitivity))


@singledispatch
def figure(result: object) -> Any:
    """Return *result*, a `Sensitivity` or a `Prediction`, as a matplotlib figure.

    Raises
    ------
    ForetraceError
        There is no picture of such a thing, or matplotlib is not installed.
    """
    kind = type(result).__name__
    raise ForetraceError(f"there is no picture of a {kind}; give a Prediction or a Sensitivity")


@figure.register
def _sensitivity(sensitivity: Sensitivity) -> Any:
    kinds = {curve.of for curve in sensitivity.curves}
    panels = [of for of in PANELS if of in kinds] or ["lane"]
    return draw_figure((10, 3.4 * len(panels)), lambda empty: _panels(empty, sensitivity, panels))


@figure.register
def _prediction(prediction: Prediction) -> Any:
    causes = len({*prediction.critical_path_before, *prediction.critical_path_after})
    return draw_figure((9, 2 + 0.3 * causes), lambda empty: _before_and_after(empty, prediction))


def write_picture(path: Path, title: str, figure: Callable[[], Any]) -> None:
    """Write the matplotlib figure that *figure* returns; *title* is that of an .html page."""
    check_plot(path)
    kind = FORMATS[path.suffix.lower()]
    picture = io.BytesIO()
    with _settings():
        figure().savefig(picture, format=kind, metadata={"Date": None} if kind == "svg" else None)
    content = picture.getvalue()
    is_page = path.suffix.lower() == ".html"
    write_atomically(path, _page(content.decode(), title) if is_page else content)


def draw_figure(inches: tuple[float, float], draw: Callable[[Any], None]) -> Any:
    """Return a matplotlib figure with what *draw* puts into it."""
    _need_matplotlib()
    from matplotlib.figure import Figure

    with _settings():
        empty = Figure(figsize=inches, layout="constrained")
        draw(empty)
    return empty


def _settings() -> Any:
    import matplotlib as mpl

    return mpl.rc_context({"svg.hashsalt": "foretrace", "text.parse_math": False})


def _before_and_after(figure: Any, prediction: Prediction) -> None:
    """Draw both critical paths by cause, the longest first."""
    paths = {"before": prediction.critical_path_before, "after": prediction.critical_path_after}
    causes = sorted({*paths["before"], *paths["after"]}, key=lambda c: paths["before"].get(c, 0.0))
    axes = figure.add_subplot()
    for (name, path), shade, shift in zip(paths.items(), SHADES, (0.2, -0.2), strict=False):
        spots = [at + shift for at in range(len(causes))]
        lengths = [path.get(cause, 0.0) / NS_PER_MS for cause in causes]
        axes.barh(spots, lengths, height=0.38, color=shade, label=name)
    axes.set_yticks(range(len(causes)), causes)
    axes.set_xlabel("ms of a step on the critical path, as replayed")
    low, high = (end / NS_PER_MS for end in prediction.interval_ns)
    step, after = prediction.measured.step_ns / NS_PER_MS, prediction.predicted_ns / NS_PER_MS
    text = f"{step:.4g} → {after:.4g} ms ({low:.4g} to {high:.4g}, {prediction.status})"
    axes.set_title(f"{short(' + '.join(prediction.scenario), 60)}\n{text}", loc="left", fontsize=10)
    axes.legend(fontsize=8, loc="lower right")


def _panels(figure: Any, sensitivity: Sensitivity, panels: list[str]) -> None:
    for at, of in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, at + 1)
        _panel(axes, sensitivity, of)


def _panel(axes: Any, sensitivity: Sensitivity, of: str) -> None:
    """Draw the curves of one kind of part, from the measured step at 0 %."""
    curves = [curve for curve in sensitivity.curves if curve.of == of]
    percents = [0.0, *sensitivity.percents]
    order = sorted(range(len(percents)), key=percents.__getitem__)
    for curve, shade in zip(curves[:MOST_CURVES], SHADES, strict=False):
        steps = [sensitivity.measured.step_ns, *curve.step_ns]
        axes.plot(
            [percents[at] for at in order],
            [steps[at] / NS_PER_MS for at in order],
            marker=".",
            color=shade,
            label=f"{short(curve.part, 40)} ({curve.work_ns / NS_PER_MS:.1f} ms)",
        )
    axes.set_title(PANELS[of], loc="left", fontsize=10)
    axes.set_xlabel("% less time in this part")
    axes.set_ylabel("step, ms")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if curves:
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))


def _page(svg: str, title: str) -> bytes:
    """Return a self-contained page with the picture in it."""
    head = f"<!doctype html><html><head><meta charset='utf-8'><title>{escape(title)}</title></head>"
    return f"{head}<body>{svg[svg.index('<svg') :]}</body></html>\n".encode()
