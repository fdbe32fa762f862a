"""Which collectives belong together: by group, by pair, and what is said where somebody lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import GraphError
from foretrace.graph.build import build
from foretrace.graph.ranks.match_collectives import _list_ranks
from foretrace.replaying.replay import replay
from tests.support.recordings.events import Row, call, kernel, steps, trace

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SEND = "ncclDevKernel_SendRecv"


def rank(*collectives: tuple[float, float, dict[str, Any]]) -> list[Row]:
    """Return three steps of 1 ms: one collective per (start, end, columns), in order of launch."""
    rows: list[Row] = []
    for number, (start, end, columns) in enumerate(collectives):
        rows.append(call(number, 1, number))
        place = {"name": REDUCE, **columns}
        rows.append(kernel(start, end - start, number, **place))
    return steps(3, 1_000, rows)


def merged(*ranks: list[Row]) -> Graph:
    """Build the graph of several ranks recorded together."""
    every = [{**row, "rank": number} for number, one in enumerate(ranks) for row in one]
    return build(trace(every, ranks=tuple(range(len(ranks)))))


def transfers(graph: Graph) -> list[tuple[int, float, list[int]]]:
    """Return per transfer of the first step: its link, its length in µs, and who attends."""
    tasks, edges = graph.tasks, graph.edges
    meets = edges[edges["kind"] == "collective"]
    of = graph.lanes["rank"].to_numpy()[tasks["lane"].to_numpy()]
    links = sorted(tasks["lane"][tasks["name"] == "transfer"].unique())
    return [
        (
            links.index(tasks["lane"].iat[row]),
            tasks["work_ns"].iat[row] / 1_000,
            sorted(of[meets["src"][meets["dst"] == row]].tolist()),
        )
        for row in tasks.index[(tasks["name"] == "transfer") & (tasks["step"] == 0)]
    ]


def in_group(name: str, size: int = 2) -> dict[str, Any]:
    """Return the columns of a collective of group *name*."""
    return {"group": name, "group_size": size}


def test_groups_smaller_than_the_world_meet_among_themselves() -> None:
    """Two pairs reduce, then all four: each meeting waits for its own members only."""
    world = in_group("world", 4)
    graph = merged(
        rank((100, 200, in_group("left")), (300, 500, world)),
        rank((150, 200, in_group("left")), (300, 500, world)),
        rank((100, 400, in_group("right")), (410, 500, world)),
        rank((370, 400, in_group("right")), (440, 500, world)),
    )

    assert transfers(graph) == [(0, 50, [0, 1]), (1, 60, [0, 1, 2, 3]), (2, 30, [2, 3])]
    assert graph.lanes["rank"].tolist()[-3:] == [0, 0, 2]
    assert graph.state.process_groups is None


def test_a_send_meets_its_receive() -> None:
    """Rank 0 sends to 1, and 1 to 2: each pair has a transfer, whichever side came first."""
    send_1, from_0 = {"name": SEND, "group": "pp ->1"}, {"name": SEND, "group": "pp 0->"}
    send_2, from_1 = {"name": SEND, "group": "pp ->2"}, {"name": SEND, "group": "pp 1->"}
    graph = merged(
        rank((100, 240, send_1)),
        rank((200, 240, from_0), (300, 430, send_2)),
        rank((50, 430, from_1)),
    )

    assert transfers(graph) == [(0, 40, [0, 1]), (1, 130, [1, 2])]
    assert replay(graph).step_ns == 1_000_000


def test_a_receive_that_nobody_sends_names_the_pair() -> None:
    """Rank 1 never sends what rank 0 waits for."""
    alone = rank((100, 240, {"name": SEND, "group": "pp 1->"}))

    with pytest.raises(GraphError) as caught:
        merged(alone, rank())

    assert str(caught.value) == (
        "rank 1 never arrives at ncclDevKernel_SendRecv of group pp 1->0, for which rank 0 waits: "
        "record the same steps on every rank"
    )


@pytest.mark.parametrize(("group", "of"), [({}, ""), (in_group("all", 4), " of group all")])
def test_a_rank_that_never_arrives_is_named(group: dict[str, Any], of: str) -> None:
    """Ranks 0 and 2 wait for 1 and 3, who recorded no collective at all."""
    waits = rank((100, 240, group))

    with pytest.raises(GraphError) as caught:
        merged(waits, rank(), waits, rank())

    assert str(caught.value) == (
        f"ranks 1 and 3 never arrive at {REDUCE}{of}, for which ranks 0 and 2 wait: "
        "record the same steps on every rank"
    )


def test_members_that_were_not_recorded_are_no_error() -> None:
    """Two of the 8 ranks of a group were recorded: they meet."""
    both = [rank((start, 240, in_group("dp", 8))) for start in (100, 200)]

    assert transfers(merged(*both)) == [(0, 40, [0, 1])]


def test_one_name_for_several_groups_is_refused() -> None:
    """Four ranks in a group of two: who belongs to whom cannot be told."""
    same = rank((100, 240, in_group("tp")))

    with pytest.raises(GraphError, match="of group tp have 2 members, yet ranks 0, 1, 2 and 3"):
        merged(same, same, same, same)


def test_collectives_that_lack_on_one_member_are_told() -> None:
    """Rank 0 reduced twice in group dp, rank 1 once: the other takes as long as its like."""
    dp = in_group("dp")
    graph = merged(rank((100, 200, dp), (300, 460, dp)), rank((100, 200, dp)))
    (doubt,) = (doubt for doubt in graph.state.doubts if doubt.code == "collectives-unmatched")

    assert doubt.text.startswith("rank 1 lacks at 2 of 4 collectives of group dp")
    assert doubt.place == f"step 0, {REDUCE}"
    assert [(length, who) for _, length, who in transfers(graph)] == [(100, [0, 1]), (100, [0])]


def test_what_was_lost_in_the_middle_shifts_nothing() -> None:
    """Rank 1 lost the second of three: the third still meets the third."""
    dp = in_group("dp")
    three = ((100, 200, dp), (300, 400, dp), (500, 600, dp))
    graph = merged(rank(*three), rank((150, 200, dp), (540, 600, dp)))

    assert [(length, who) for _, length, who in transfers(graph)] == [
        (50, [0, 1]),
        (55, [0]),
        (60, [0, 1]),
    ]


def test_collectives_of_another_kind_are_not_one() -> None:
    """Each rank lost a different one; as many are left, and only the second of each is common."""
    dp = in_group("dp")
    gather, scatter = ({**dp, "name": f"ncclDevKernel_{n}"} for n in ("AllGather", "ReduceScatter"))
    graph = merged(
        rank((100, 200, gather), (300, 400, dp)), rank((310, 400, dp), (500, 600, scatter))
    )

    assert [who for _, _, who in transfers(graph)] == [[0], [0, 1], [1]]


def test_sends_and_receives_that_end_together_are_one() -> None:
    """Nobody names a peer: the second rank's receive ends with the send of the first."""
    plain = {"name": SEND}
    graph = merged(
        rank((300, 400, plain)), rank((10, 401, plain), (600, 640, plain)), rank((20, 639, plain))
    )

    assert [(length, who) for _, length, who in transfers(graph)] == [
        (100.5, [0, 1]),
        (39.5, [1, 2]),
    ]
    assert "4 sends and receives name no peer: those that end together are one" in graph.notes


def test_groups_that_nobody_names_are_told_by_who_ends_together() -> None:
    """Two pairs reduce, each at its own time, then ranks 0 and 2, and 1 and 3, on one stream."""
    graph = merged(
        rank((100, 200, {}), (300, 500, {})),
        rank((150, 200, {}), (390, 600, {})),
        rank((100, 400, {}), (450, 500, {})),
        rank((370, 400, {}), (440, 600, {})),
    )

    assert transfers(graph) == [
        (0, 50, [0, 1]),
        (1, 30, [2, 3]),
        (2, 50, [0, 2]),
        (3, 160, [1, 3]),
    ]


def test_one_rank_that_ends_alone_is_no_group() -> None:
    """Its clock may be off: times tell nothing."""
    graph = merged(*(rank((100, end, {})) for end in (200, 200, 260)))

    assert transfers(graph) == [(0, 100, [0, 1, 2])]


def test_a_rank_that_passes_on_at_once_is_in_two_pairs() -> None:
    """Rank 1 sends to 2 until 300 µs, and receives from 0 until 312."""
    plain = {"name": SEND}
    graph = merged(
        rank((100, 312, plain)),
        rank((270, 300, plain), (301, 312, {**plain, "stream": 8})),
        rank((50, 300, plain)),
    )

    assert [who for _, _, who in transfers(graph)] == [[1, 2], [0, 1]]


def test_ranks_that_would_wait_forever_meet_elsewhere() -> None:
    """Rank 0 reduces in group a, then b, and rank 1 the other way round; both meet in c."""
    first, second, third = (in_group(name) for name in "abc")
    graph = merged(
        rank((100, 200, first), (300, 400, second), (500, 600, third)),
        rank((100, 200, second), (300, 400, first), (540, 600, third)),
    )
    (doubt,) = (doubt for doubt in graph.state.doubts if doubt.code == "ranks-deadlock")

    assert transfers(graph) == [(0, 60, [0, 1])]
    assert replay(graph).step_ns == 1_000_000
    assert doubt.place == f"step 0, {REDUCE}"
    assert doubt.text.startswith("4 collectives of the ranks do not fit together")


def test_many_ranks_are_counted() -> None:
    """A sentence lists eight."""
    assert _list_ranks(list(range(20))) == "ranks 0, 1, 2, 3, 4, 5, 6 and 13 more"
