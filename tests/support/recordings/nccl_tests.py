"""Logs of nccl-tests, as the program prints them today."""
# ruff: noqa: E501 - logs are as they are printed

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DEVICES = "# Using devices\n" + "".join(
    f"#  Rank  {rank} Group  0 Pid   4{rank} on    node{rank // 2} device  {rank} [0x0{rank}] "
    "NVIDIA A100-SXM4-80GB\n"
    for rank in range(4)
)
HEADER = """#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
LINES = """\
     1048576        262144     float     sum      -1    104.0   10.08   15.12      0    100.0   10.49   15.73      0
     2097152        524288     float     sum      -1    200.0   10.49   15.73    N/A    200.0   10.49   15.73    N/A
"""
TODAY = "# Collective test starting: all_reduce_perf\n" + DEVICES + HEADER + LINES


def write_log(folder: Path, text: str, name: str = "x.log") -> Path:
    """Write *text* as a log."""
    path = folder / name
    path.write_text(text, "utf-8")
    return path
