"""How well devices are used, as text and JSON: parts of other reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.report.number_format import duration, ms, number, percent, share
from foretrace.report.text_layout import Blocks, aside, fact_table, heading, table

if TYPE_CHECKING:
    from foretrace.analysis.utilisation import ClassRate, Utilisation

FLOP = (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6))
LEAST_SHARE = 0.005
"""Of the kernels' time; shorter classes are not shown in text."""


def utilisation_keys(used: Utilisation | None) -> dict[str, Any] | None:
    """Return the JSON form; unknown is None."""
    if used is None:
        return None
    return {
        "busy_pct": percent(used.busy),
        "sm_idle_pct": _percent(used.sm_idle),
        "communication_ms": ms(used.communication_ns),
        "exposed_communication_ms": ms(used.exposed_ns),
        "model_tflop": _tera(used.model_flops),
        "recomputed_tflop": _tera(used.again_flops),
        "model_tflops": _round(used.tflops),
        "peak_tflops": used.peak_tflops,
        "precision": used.precision,
        "mfu_pct": _percent(used.mfu),
        "hfu_pct": _percent(used.hfu),
        "products_counted_pct": percent(used.counted),
        "kernel_classes": [_rate_keys(rate) for rate in used.rates],
        "missing": list(used.missing),
    }


def _rate_keys(rate: ClassRate) -> dict[str, Any]:
    return {
        "class": rate.name,
        "ms": ms(rate.ns),
        "counted_pct": percent(rate.counted),
        "tflops": _round(rate.tflops),
        "peak_tflops": rate.peak_tflops,
        "gbps": _round(rate.gbps),
        "peak_gbps": rate.peak_gbps,
    }


def utilisation_blocks(used: Utilisation | None, decimals: int) -> Blocks:
    """Return the lines and the table of kernel classes; nothing without a device."""
    if used is None:
        return []
    return [
        heading("Use of the device, per step"),
        fact_table(*_facts(used, decimals)),
        *_classes(used, decimals),
        *map(aside, used.missing),
    ]


def _facts(used: Utilisation, decimals: int) -> list[tuple[str, str, str]]:
    facts = [("busy", share(used.busy), "of the step the device works")]
    if used.sm_idle is not None:
        facts.append(("SMs idle", share(used.sm_idle), "of the kernels' time, without any block"))
    if used.communication_ns:
        beside = (
            f"communication beside which nothing runs, of {number(used.communication_ns, decimals)}"
        )
        facts.append(("exposed", duration(used.exposed_ns, decimals), beside))
    if used.model_flops is not None:
        per_second = _flop(used.model_flops / used.step_ns * 1e9)
        facts.append(("operations", _flop(used.model_flops), f"of the model: {per_second}/s"))
    if used.mfu is not None and used.hfu is not None:
        again = f"; HFU {share(used.hfu)} with what is computed again" if used.again_flops else ""
        facts.append(
            ("MFU", share(used.mfu), f"of {used.peak_tflops:,g} TFLOP/s in {used.precision}{again}")
        )
    return facts


def _classes(used: Utilisation, decimals: int) -> Blocks:
    total = sum(rate.ns for rate in used.rates)
    rows = [
        (
            rate.name,
            number(rate.ns, decimals),
            *_reached(rate.tflops, rate.peak_tflops),
            *_reached(rate.gbps, rate.peak_gbps),
        )
        for rate in used.rates
        if rate.ns >= LEAST_SHARE * total and (rate.tflops or rate.gbps)
    ]
    heads = ("Kernels reach", "ms", "TFLOP/s", "of peak", "GB/s", "of peak")
    return [table("lrrrrr", rows, heads)] if rows else []


def _reached(rate: float | None, peak: float | None) -> tuple[str, str]:
    if rate is None:
        return "", ""
    return f"{rate:,.4g}", share(rate / peak) if peak else ""


def _flop(count: float) -> str:
    """Return operations in the unit that suits their number.

    >>> _flop(34.65e12), _flop(53.77e6)
    ('34.65 TFLOP', '53.77 MFLOP')
    """
    unit, factor = next(((u, f) for u, f in FLOP if count >= f), FLOP[-1])
    return f"{count / factor:,.4g} {unit}"


def _percent(part: float | None) -> float | None:
    return None if part is None else percent(part)


def _round(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 3)


def _tera(flops: float | None) -> float | None:
    return None if flops is None else round(flops / 1e12, 6)
