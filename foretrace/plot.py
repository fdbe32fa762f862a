"""Curves in, a picture out: matplotlib draws it (the optional extra ``plot``)."""

from __future__ import annotations

import io
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from foretrace.atomic import check_writable, write_atomically
from foretrace.errors import ForetraceError
from foretrace.formats import NS_PER_MS, short

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from foretrace.sensitivity import Curve, Sensitivity

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
    if find_spec("matplotlib") is None:
        raise ForetraceError("drawing needs matplotlib: pip install 'foretrace[plot]'")
    check_writable(path)


def draw(found: Sensitivity, path: Path) -> None:
    """Draw a panel of curves per kind of part and write it to *path*."""
    panels = [of for of in PANELS if any(curve.of == of for curve in found.curves)] or ["lane"]
    size = (10, 3.4 * len(panels))
    write_picture(
        path, "Step time if one part took less time", size, lambda f: _panels(f, found, panels)
    )


def write_picture(
    path: Path, title: str, inches: tuple[float, float], draw: Callable[[Any], None]
) -> None:
    """Write what *draw* puts into a matplotlib figure; *title* is that of an .html page."""
    check_plot(path)
    kind = FORMATS[path.suffix.lower()]
    picture = _picture(kind, inches, draw)
    if path.suffix.lower() == ".html":
        picture = _page(picture.decode(), title)
    write_atomically(path, picture)


def _picture(kind: str, inches: tuple[float, float], draw: Callable[[Any], None]) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "foretrace", "text.parse_math": False}):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        drawn = io.BytesIO()
        figure.savefig(drawn, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return drawn.getvalue()


def _panels(figure: Any, found: Sensitivity, panels: list[str]) -> None:
    for at, of in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, at + 1)
        _panel(axes, found, [curve for curve in found.curves if curve.of == of], PANELS[of])


def _panel(axes: Any, found: Sensitivity, curves: list[Curve], title: str) -> None:
    """Draw the curves of one kind of part, from the measured step at 0 %."""
    percents = [0.0, *found.percents]
    order = sorted(range(len(percents)), key=percents.__getitem__)
    for curve, shade in zip(curves[:MOST_CURVES], SHADES, strict=False):
        steps = [found.measured.step_ns, *curve.step_ns]
        axes.plot(
            [percents[at] for at in order],
            [steps[at] / NS_PER_MS for at in order],
            marker=".",
            color=shade,
            label=f"{short(curve.part, 40)} ({curve.work_ns / NS_PER_MS:.1f} ms)",
        )
    axes.set_title(title, loc="left", fontsize=10)
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
