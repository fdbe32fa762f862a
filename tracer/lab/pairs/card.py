"""The card of a model's pairs: hardware, versions, command and what was measured.

Markdown for people, JSON for programs, from the same ``.pair.json`` files.
"""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any

from foretrace.tracer.data_issues import sentences
from foretrace.tracer.lab.pairs.archive import CALIBRATION, PAIR
from foretrace.tracer.step_stats import NOISE_LIMIT

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (
    *("change", "predicted by", "before ms", "after ms", "noise %", "times"),
    *("conclusive", "calibrated"),
)


def write_cards(folder: Path, out: Path) -> list[Path]:
    """Write ``MODEL-DEVICE.md`` and ``.json`` into *out* for every model with pairs."""
    cards = []
    for model in sorted(path for path in folder.iterdir() if path.is_dir()):
        pairs = [json.loads(p.read_text("utf-8")) for p in sorted(model.glob(f"*{PAIR}"))]
        if pairs:
            for pair in pairs:
                pair["calibrated"] = (model / f"{pair['change']}{CALIBRATION}").exists()
            path = out / f"{model.name}-{pairs[0]['device']}.md"
            card = _card(pairs)
            path.write_text(_markdown(card), "utf-8")
            path.with_suffix(".json").write_text(json.dumps(card, indent=1) + "\n", "utf-8")
            cards.append(path)
    return cards


def _card(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    facts = pairs[0]["before"]["facts"]
    return {
        "model": pairs[0]["model"],
        "hardware": pairs[0]["hardware"],
        "machine": facts["machine"],
        "framework": facts["framework"],
        "python": platform.python_version(),
        "system": platform.system() + " " + platform.machine(),
        "command": facts["command"],
        "batch_size": facts["batch_size"],
        "optimizer": facts["optimizer"],
        "warnings": sentences(facts["warnings"]),
        "pairs": [_row(pair) for pair in pairs],
    }


def _row(pair: dict[str, Any]) -> dict[str, Any]:
    before, after = pair["before"], pair["after"]
    return {
        "change": pair["change"],
        "scenario": pair["scenario"],
        "before_ms": round(before["mean_ns"] / 1e6, 3),
        "after_ms": round(after["mean_ns"] / 1e6, 3),
        "noise_pct": round(100 * pair["noise"], 2),
        "conclusive": pair["noise"] <= NOISE_LIMIT,
        "calibrated": pair["calibrated"],
        "times": [len(before["step_ns"]), len(after["step_ns"])],
        "quality": {"before": before["quality"], "after": after["quality"]},
    }


def _markdown(card: dict[str, Any]) -> str:
    optimizer, machine = card["optimizer"], card["machine"]
    recorded = f"`{card['command']}` with {card['framework']}, Python {card['python']}"
    rates = (
        f"{machine['fp32_gflops']} GFLOP/s in fp32, {machine['bf16_gflops']} in bf16, "
        f"{machine['copy_gbps']} GB/s copied"
    )
    size = f"{optimizer['parameters']:,} parameters in {optimizer['tensors']} tensors"
    lines = [
        f"# {card['model']} on {card['hardware']}",
        "",
        f"Recorded by {recorded}, {card['system']}.",
        f"{machine['cores']} core(s), {machine['threads']} thread(s) of {machine['cpu']}: {rates}.",
        f"{size}, {optimizer['name']}, batch size {card['batch_size']} before the change.",
        *(f"Warning: {sentence}." for sentence in card["warnings"]),
        "",
        "Times are unprofiled, 20 % trimmed means over interleaved blocks.",
        "Noise is the drift of the ratio between the halves; above 2 % a pair is inconclusive.",
        "Calibrated: the operators of both forms were timed alone as well.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    lines += [
        f"| {row['change']} | `{row['scenario']}` | {row['before_ms']:.2f} | {row['after_ms']:.2f} "
        f"| {row['noise_pct']:.2f} | {row['times'][0]} + {row['times'][1]} "
        f"| {_yes_no(row['conclusive'])} | {_yes_no(row['calibrated'])} |"
        for row in card["pairs"]
    ]
    return "\n".join(lines) + "\n"


def _yes_no(value: object) -> str:
    return "yes" if value else "no"
