"""How the ranks of a job find each other at the start: rank 0 claims the attempt and opens the store, all others join.

Collective: all ranks are here at the same time. What fails on one fails on all, with the same words.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's own re-export

from rampmeter.core.clock import Clock
from rampmeter.core.errors import ConfigError, RampmeterError
from rampmeter.layout import Claim, Root
from rampmeter.ranks.bulletin import Bulletin, join_store, serve_store
from rampmeter.ranks.group import FlushGroup

_SHARED_LIMIT_S = 5.0
_LOOK_AGAIN_S = 0.1
_THIS_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What rank 0 tells all others. `address` is for those on other hosts."""

    job_uid: str
    claim: Claim
    host: str
    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The ranks are together."""

    rank: int
    num_ranks: int
    group: FlushGroup
    store: TCPStore
    job_uid: str
    claim: Claim


def num_ranks() -> int:
    """How many ranks this job has; 1 where torch.distributed is not initialised."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def open_together(root: Root, claim_root: Callable[[], tuple[str, Claim]], clock: Clock) -> Opened:
    """On all ranks at once. `claim_root` is called on rank 0 only. ConfigError on all if anything fails on one."""
    rank, group = dist.get_rank(), FlushGroup()
    served: TCPStore | None = None
    told: Opening | str | None = None
    if rank == 0:
        served, told = _serve(claim_root)
    opening = cast("Opening | str", group.tell_all(told))
    if isinstance(opening, str):
        group.close()
        raise ConfigError(opening)
    store, trouble = (served, "") if served is not None else _join(root, opening, rank, clock)
    troubles = [line for line in group.ask_all(trouble) if line]
    if troubles or store is None:
        group.close()
        raise ConfigError("; ".join(troubles))
    return Opened(
        rank=rank,
        num_ranks=num_ranks(),
        group=group,
        store=store,
        job_uid=opening.job_uid,
        claim=opening.claim,
    )


def _serve(claim_root: Callable[[], tuple[str, Claim]]) -> tuple[TCPStore | None, Opening | str]:
    try:
        job_uid, claim = claim_root()
        store = serve_store(_THIS_HOST)
        Bulletin(store, 0).prepare(num_ranks())
    except RampmeterError as error:
        return None, str(error)
    host = socket.gethostname()
    opening = Opening(
        job_uid=job_uid,
        claim=claim,
        host=host,
        address=os.environ.get("MASTER_ADDR", host),
        port=store.port,
    )
    return store, opening


def _join(root: Root, opening: Opening, rank: int, clock: Clock) -> tuple[TCPStore | None, str]:
    """The store, and what is wrong here."""
    is_same_host = socket.gethostname() == opening.host
    try:
        store = join_store(_THIS_HOST if is_same_host else opening.address, opening.port)
    except RampmeterError as error:
        return None, f"rank {rank} does not reach rank 0 at {opening.address}:{opening.port}: {error}"
    if _sees_claim(root, opening, clock):
        return store, ""
    return store, (
        f"root {root.path} is not shared: rank {rank} on {socket.gethostname()} does not find there what rank 0 on "
        f"{opening.host} has just written; all ranks need the same directory"
    )


def _sees_claim(root: Root, opening: Opening, clock: Clock) -> bool:
    """Whether this rank has the root of rank 0. Another host may see a new file a moment late."""
    end_s = clock.now() + _SHARED_LIMIT_S
    while clock.now() < end_s:
        try:
            if root.newest_claim() == opening.claim:
                return True
        except OSError:
            pass  # not there, or not yet
        clock.sleep(_LOOK_AGAIN_S)
    return False
