"""Logs of nccl-tests: every layout in use, what cannot be read counted by reason."""
# ruff: noqa: E501 - logs are as they are printed

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TraceError
from foretrace.transforms.cluster.cost_tables import CostEntry
from foretrace.transforms.collectives.nccl_tests_log import read_log
from tests.support.recordings.nccl_tests import DEVICES, HEADER, LINES, TODAY, write_log

if TYPE_CHECKING:
    from pathlib import Path

TWO = [
    CostEntry("A100-SXM4-80GB", "", "all_reduce", 4, 1 << 20, 102_000.0, 2 / 102),
    CostEntry("A100-SXM4-80GB", "", "all_reduce", 4, 2 << 20, 200_000.0, 0.0),
]


def test_today_s_layout(tmp_path: Path) -> None:
    """Both columns count: their mean, and half their difference."""
    found = read_log(write_log(tmp_path, TODAY))

    assert list(found.entries) == TWO
    assert not found.left_out


def test_the_topology_is_kept(tmp_path: Path) -> None:
    """Where it is known."""
    assert read_log(write_log(tmp_path, TODAY), topology="switch").entries[0].topology == "switch"


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", " 0: "])
def test_lines_with_a_prefix(prefix: str, tmp_path: Path) -> None:
    """As mpirun and srun tag them."""
    tagged = "".join(f"{prefix}{line}\n" for line in TODAY.splitlines())

    assert list(read_log(write_log(tmp_path, tagged)).entries) == TWO


def test_a_compressed_log(tmp_path: Path) -> None:
    """By its content, not its name."""
    path = tmp_path / "x.log"
    path.write_bytes(gzip.compress(TODAY.encode()))

    assert list(read_log(path).entries) == TWO


OLD = """\
$ ./build/all_reduce_perf -b 1M -e 1M -g 2
#   Rank  0 Pid  29565 on     server device  0 [0x01] A40
#   Rank  1 Pid  29565 on     server device  1 [0x25] A40
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float     sum    104.0   10.08   10.08  4e-07    104.0   10.08   10.08  4e-07
# Out of bounds values : 0 OK
"""
OLDER = OLD.replace("all_reduce", "broadcast").replace("   redop ", " ").replace("     sum ", " ")


@pytest.mark.parametrize(("text", "kind"), [(OLD, "all_reduce"), (OLDER, "broadcast")])
def test_older_layouts(text: str, kind: str, tmp_path: Path) -> None:
    """Without a root, without an operator, with rounding errors instead of counts."""
    (entry,) = read_log(write_log(tmp_path, text)).entries

    assert entry == CostEntry("A40", "", kind, 2, 1 << 20, 104_000.0, 0.0)


def test_one_column_only(tmp_path: Path) -> None:
    """Some builds leave the second one out."""
    text = f"""{DEVICES}
# alltoall_perf
#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576        262144     float    none      -1    104.0   10.08    7.56    N/A
"""
    (entry,) = read_log(write_log(tmp_path, text)).entries

    assert (entry.kind, entry.ns, entry.spread) == ("all_to_all", 104_000.0, 0.0)


@pytest.mark.parametrize(
    ("test", "kind"),
    [
        ("all_gather_perf", "all_gather"),
        ("reduce_scatter_perf", "reduce_scatter"),
        ("reduce_perf", "reduce"),
        ("sendrecv_perf", "send"),
        ("all_reduce_perf_mpi", "all_reduce"),
    ],
)
def test_every_test_has_its_kind(test: str, kind: str, tmp_path: Path) -> None:
    """By the name of the program."""
    text = TODAY.replace("all_reduce_perf", test)

    assert {entry.kind for entry in read_log(write_log(tmp_path, text)).entries} == {kind}


def test_several_tests_in_one_log(tmp_path: Path) -> None:
    """Each with its own kind and ranks; the end of one is not the start of the next."""
    end = "# Collective test concluded: all_reduce_perf\n"
    second = TODAY.replace("all_reduce", "all_gather")
    found = read_log(write_log(tmp_path, TODAY + end + second))

    assert [entry.kind for entry in found.entries] == ["all_reduce"] * 2 + ["all_gather"] * 2


def test_the_name_of_the_file_may_say_the_test(tmp_path: Path) -> None:
    """Where the log does not."""
    found = read_log(write_log(tmp_path, DEVICES + HEADER + LINES, "all_gather_perf.txt"))

    assert found.entries[0].kind == "all_gather"


@pytest.mark.parametrize(
    ("test", "busbw", "ranks"),
    [("all_reduce", "15.73", 4), ("all_gather", "9.18", 8), ("reduce_scatter", "5.25", 2)],
)
def test_ranks_from_the_bandwidths(test: str, busbw: str, ranks: int, tmp_path: Path) -> None:
    """An excerpt without its list of devices: bus over algorithm bandwidth tells."""
    text = f"# {test}_perf\n" + HEADER + LINES.splitlines()[1].replace("15.73", busbw)

    assert {entry.ranks for entry in read_log(write_log(tmp_path, text)).entries} == {ranks}


def test_ranks_may_be_given(tmp_path: Path) -> None:
    """Where nothing tells."""
    text = "# broadcast_perf\n" + HEADER + LINES

    assert read_log(write_log(tmp_path, text), ranks=16).entries[0].ranks == 16
    with pytest.raises(TraceError, match="does not say how many ranks took part; give --ranks"):
        read_log(write_log(tmp_path, text))


def test_slow_messages_do_not_tell_the_ranks(tmp_path: Path) -> None:
    """Two digits of a bandwidth below 1 GB/s are too few."""
    text = "# all_reduce_perf\n" + HEADER + LINES.splitlines()[0].replace("10.", "0.")

    with pytest.raises(TraceError, match="give --ranks"):
        read_log(write_log(tmp_path, text))


def test_lines_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    """By what is wrong with them; the rest is kept."""
    good = LINES.splitlines()[0]
    bad = [
        good.replace("104.0", "abc"),
        good.replace("104.0", "-1"),
        good.replace("104.0", "inf"),
        " ".join(good.split()[:9]),
        good.replace("15.12      0", "15.12      7"),
        good.replace("1048576", "0"),
        good.replace("104.0", "0.104"),
    ]
    found = read_log(write_log(tmp_path, TODAY + "\n".join(bad)))

    assert list(found.entries) == TWO
    assert found.left_out == {
        "could not be read": 4,
        "had wrong results": 1,
        "moved 0 bytes": 1,
        "have a time that does not match their bandwidth": 1,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no result of nccl-tests in it"),
        (TODAY.replace("all_reduce_perf", "hypercube_perf"), "does not say which test it is of"),
        (TODAY.split("#  Rank  1")[0] + HEADER + LINES, "one rank exchanges nothing"),
        (
            "# all_reduce_perf\n" + DEVICES + LINES,
            r"no result of nccl-tests in it; 2 line\(s\) could not be read",
        ),
    ],
)
def test_useless_logs(text: str, said: str, tmp_path: Path) -> None:
    """Nothing in it; an unknown test; processes that were groups of their own; no header."""
    with pytest.raises(TraceError, match=f"x.log: {said}"):
        read_log(write_log(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, or cut short."""
    cut = tmp_path / "cut"
    cut.write_bytes(gzip.compress(TODAY.encode() * 100)[:100])

    with pytest.raises(TraceError, match=r"gone: cannot be read \(No such file"):
        read_log(tmp_path / "gone")
    with pytest.raises(TraceError, match="cut: cannot be read"):
        read_log(cut)


def test_a_huge_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before it is taken apart."""
    monkeypatch.setattr("foretrace.transforms.collectives.nccl_tests_log.MOST_BYTES", 100)

    with pytest.raises(TraceError, match="more than 100 bytes is no log"):
        read_log(write_log(tmp_path, TODAY))


VTRAIN = "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n"


def test_tables_of_vtrain(tmp_path: Path) -> None:
    """Times in ns; device and ranks are in the file's name."""
    text = VTRAIN + "1048576,262144,float,104000,1,100000,1\nx,y\n1,1,float,0,0,0,0\n"
    text += "1024,256,float,nan,1,9,1\n1024,256,float,inf,1,9,1\n-8,2,float,9,1,9,1\n"
    found = read_log(write_log(tmp_path, text, "v100_allreduce_4gpu_1M.csv"), topology="mesh")

    assert found.entries == (
        CostEntry("V100-SXM2", "mesh", "all_reduce", 4, 1 << 20, 102_000.0, 2 / 102),
    )
    assert found.left_out == {"could not be read": 5}
    with pytest.raises(TraceError, match="no result of vTrain's NCCL tables in it"):
        read_log(write_log(tmp_path, VTRAIN + "x,y\n", "v100_allreduce_4gpu_1M.csv"))


def test_a_table_of_vtrain_must_name_its_gpus(tmp_path: Path) -> None:
    """Nothing inside says it; another device is left open."""
    row = VTRAIN + "1048576,262144,float,104000,1,100000,1\n"

    assert read_log(write_log(tmp_path, row, "3gpu.csv")).entries[0][:4] == (
        "",
        "",
        "all_reduce",
        3,
    )
    with pytest.raises(TraceError, match="its name does not say how many GPUs"):
        read_log(write_log(tmp_path, row, "x.csv"))
