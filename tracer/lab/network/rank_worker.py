"""The process of one rank: commands come in as JSON lines, one reply each goes out.

Started on the rank's network, with allocator, threads and core fixed before torch computes. It
ends with the process that started it, and when its standard input is closed. A module that knows
more commands than this one calls `work` with a table of its own.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TextIO

from foretrace.tracer.child_process import end_with
from foretrace.tracer.lab.network.collective_timer import time_collective
from foretrace.tracer.lab.network.party import Party

TIMEOUT = timedelta(seconds=60)
Commands = Mapping[str, Callable[..., Any]]
"""Name of a command to what answers it, given the command's arguments by name."""


def collective_commands(party: Party, _device: str) -> Commands:
    """Return what every worker can be told: to time a collective."""
    return {"time_collective": partial(time_collective, party)}


def serve(party: Party, commands: Commands, lines: TextIO, replies: TextIO) -> None:
    """Answer every one of *lines* by one line; a failure is answered, too, and is the last.

    A line is a JSON object: ``do`` names one of *commands*, the rest are its arguments.
    """
    for line in lines:
        try:
            arguments = json.loads(line)
            reply = {"reply": commands[arguments.pop("do")](**arguments)}
        except Exception as error:  # noqa: BLE001 - whatever torch raises, the peers must hear of it
            text = (str(error).splitlines() or [""])[0]
            reply = {"error": f"rank {party.rank}: {type(error).__name__}: {text}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if "error" in reply:
            break


def settle(party: Party) -> None:  # pragma: no cover - binds the whole process
    """Bind this process to a core, ranks in turn, and torch to one thread; a server goes free.

    One with a device takes that of its rank.
    """
    import torch

    usable = sorted(os.sched_getaffinity(0))
    if not party.is_server:
        os.sched_setaffinity(0, {usable[party.rank % len(usable)]})
    torch.set_num_threads(1)
    if party.device != "cpu":
        torch.cuda.set_device(party.device)


def work(
    arguments: Sequence[str],
    commands: Callable[[Party, str], Commands] = collective_commands,
) -> None:  # pragma: no cover - runs in a process of its own
    """Take part as *arguments* say, and answer *commands*, given this rank and its network device.

    Rank, ranks, servers, address and port of rank 0, network device, parent process, backend.
    """
    rank, ranks, servers, parent = (int(arguments[place]) for place in (0, 1, 2, 5))
    address, device = arguments[3:5]
    backend = arguments[6]
    holds = f"cuda:{rank}" if backend == "nccl" else "cpu"
    end_with(parent)
    warnings.filterwarnings("ignore")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed is no reply
    settle(Party(rank, ranks, servers, None, holds))
    import torch.distributed as dist

    dist.init_process_group(
        backend,
        init_method=f"tcp://{address}",
        rank=rank,
        world_size=ranks + servers,
        timeout=TIMEOUT,
    )
    replies.write(json.dumps({"reply": "ready"}) + "\n")
    replies.flush()
    party = Party(rank, ranks, servers, dist.group.WORLD, holds)
    serve(party, commands(party, device), sys.stdin, replies)
    sys.stderr.flush()
    os._exit(0)  # threads of gloo that are still alive would abort an orderly end


if __name__ == "__main__":  # pragma: no cover - same
    work(sys.argv[1:])
