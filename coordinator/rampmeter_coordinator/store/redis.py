"""The store for replicas: Redis or Valkey. Keys `rm:{POOL}:head`, `:records`, `:log`, `:start`, `:start-records`, all
of a pool in one slot, and `rm:leader`.

One script (commit.lua) keeps a batch if its epoch and number fit, so that a deposed coordinator can write nothing.
Records have no expiry: dropping one is a decision of the ledger. Only the leader's lease has one.
"""

import json
from importlib.resources import files
from itertools import chain
from typing import Any

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from rampmeter_coordinator.errors import Fenced, LostCommits
from rampmeter_coordinator.store.connection import Connection, FixedServer, client_of
from rampmeter_coordinator.store.protocol import (
    LOG_ROWS,
    Batch,
    Candidate,
    Head,
    Lead,
    LogRow,
    Position,
    Segment,
    StoredPool,
    pack_rows,
    segment_of,
    unpack_rows,
)
from rampmeter_coordinator.store.sentinel import SCHEME, SentinelServer, parse_sentinel

_LEADER = "rm:leader"


def _script(name: str) -> AsyncScript:
    """A script that is sent by its digest, and whole to a server that does not know it (any more)."""
    return AsyncScript(Redis(), (files(__package__) / name).read_text())


_COMMIT, _LEAD, _RESIGN = _script("commit.lua"), _script("lead.lua"), _script("resign.lua")


class RedisStore:
    """Use `open`. A server process other than the one that kept the newest commit may have lost some."""

    def __init__(self, connection: Connection, *, run_id: str, log_rows: int = LOG_ROWS) -> None:
        self._connection = connection
        self._run_id = run_id
        self._log_rows = log_rows

    @classmethod
    async def open(cls, url: str, *, log_rows: int = LOG_ROWS) -> "RedisStore":
        """Connect and check the server's settings. Raises ConfigError or StoreUnavailable."""
        if url.startswith(SCHEME):
            return await cls._start(Connection(SentinelServer(parse_sentinel(url))), log_rows)
        return await cls.start(client_of(url), log_rows=log_rows)

    @classmethod
    async def start(cls, client: Redis, *, log_rows: int = LOG_ROWS) -> "RedisStore":
        """A store over `client`, if that server keeps what it is given."""
        try:
            return await cls._start(Connection(FixedServer(client)), log_rows)
        except BaseException:
            await client.aclose()
            raise

    @classmethod
    async def _start(cls, connection: Connection, log_rows: int) -> "RedisStore":
        return cls(connection, run_id=await connection.call(_run_id), log_rows=log_rows)

    async def load(self, pool: str) -> StoredPool | None:
        head, records = await self._connection.call(lambda client: _read(client, pool))
        # Asked after the reading: had the server been replaced meanwhile, the ids would differ.
        self._run_id = await self._connection.call(_run_id)
        if not head:
            return None
        same = head[b"run_id"].decode() == self._run_id
        return StoredPool(
            head=_head({name.decode(): value for name, value in head.items()}),
            records={key.decode(): value for key, value in records.items()},
            meta=head[b"meta"],
            contiguous=same,
            overlap_s=0.0 if same else self._connection.overlap_s,
        )

    async def commit(self, batch: Batch) -> None:
        arguments = _arguments(batch, self._run_id, self._log_rows)
        verdict, epoch, number = await self._connection.call(
            lambda client: _COMMIT(keys=_keys(batch.pool), args=arguments, client=client)
        )
        if verdict == b"fenced":
            raise Fenced(f"pool {batch.pool}: epoch {epoch} with commit {number} has taken over")
        if verdict == b"lost":
            raise LostCommits(
                f"pool {batch.pool}: the store is at commit {number}, but it had kept {batch.head.number - 1}"
            )

    async def newest(self, pool: str) -> Position | None:
        epoch, number, writer = await self._connection.call(lambda client: _position(client, pool))
        if epoch is None:
            return None
        return Position(epoch=int(epoch), number=int(number), writer=writer.decode())

    async def segment(self, pool: str) -> Segment | None:
        start, records, log, num_rows = await self._connection.call(lambda client: _read_log(client, pool))
        if not start:
            return None
        return segment_of(
            epoch=int(start[b"epoch"]),
            opening=start[b"opening"],
            meta=start[b"meta"],
            records={key.decode(): value for key, value in records.items()},
            log=_rows_of(log),
            num_since=int(num_rows or 0) - int(start[b"rows"]),
        )

    async def lead(self, candidate: Candidate, ttl_s: float) -> Lead:
        value = _leader_value(candidate)
        arguments: list[str | int] = [candidate.holder, value, round(ttl_s * 1000)]
        found = await self._connection.call(
            lambda client: _LEAD(keys=[_LEADER], args=arguments, client=client)
        )
        leader = _leader(found)
        if leader.holder == candidate.holder:
            # The next commit goes on from what this server process has, or it is refused as lost.
            self._run_id = await self._connection.call(_run_id)
        return Lead(leader=leader, ttl_s=ttl_s)

    async def resign(self, holder: str) -> None:
        await self._connection.call(lambda client: _RESIGN(keys=[_LEADER], args=[holder], client=client))

    async def log(self, pool: str) -> list[LogRow]:
        """The newest decisions, oldest first."""
        found: list[Any] = await self._connection.call(lambda client: client.lrange(_keys(pool)[2], 0, -1))
        return _rows_of(found)

    async def close(self) -> None:
        await self._connection.close()


async def _read(client: Redis, pool: str) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    pipeline = client.pipeline(transaction=True)
    pipeline.hgetall(_keys(pool)[0])
    pipeline.hgetall(_keys(pool)[1])
    head, records = await pipeline.execute()
    return head, records


async def _read_log(client: Redis, pool: str) -> list[Any]:
    head, _, log, start, start_records = _keys(pool)
    pipeline = client.pipeline(transaction=True)
    pipeline.hgetall(start)
    pipeline.hgetall(start_records)
    pipeline.lrange(log, 0, -1)
    pipeline.hget(head, "rows")
    found: list[Any] = await pipeline.execute()
    return found


async def _position(client: Redis, pool: str) -> list[Any]:
    return await client.hmget(_keys(pool)[0], ["epoch", "number", "writer"])


async def _run_id(client: Redis) -> str:
    info: dict[str, Any] = await client.info("server")
    return str(info.get("run_id", ""))


def _leader_value(candidate: Candidate) -> str:
    rest = {"url": candidate.url, "boot_id": candidate.boot_id, "now_s": candidate.now_s}
    return f"{candidate.holder} {json.dumps(rest)}"


def _leader(value: bytes) -> Candidate:
    holder, _, rest = value.decode().partition(" ")
    return Candidate(holder=holder, **json.loads(rest))


def _keys(pool: str) -> list[str]:
    return [f"rm:{{{pool}}}:{name}" for name in ("head", "records", "log", "start", "start-records")]


def _arguments(batch: Batch, run_id: str, log_rows: int) -> list[str | bytes | int]:
    """ARGV of commit.lua. Few and large ones: the client takes a microsecond for each."""
    head, records = batch.head, batch.changes.records
    changed = [(key.encode(), value) for key, value in records.items() if value is not None]
    return [
        head.epoch,
        head.number,
        head.writer,
        head.boot_id,
        repr(head.now_s),
        repr(head.grace_s),
        repr(head.grace_until_s),
        run_id,
        batch.changes.meta,
        log_rows,
        batch.opening or b"",
        len(batch.log),
        b"%d:%s" % (len(batch.log), pack_rows(batch.log)),
        "".join([f"{len(key)}:{len(value)} " for key, value in changed]),
        b"".join(chain.from_iterable(changed)),
        *(key for key, value in records.items() if value is None),
    ]


def _head(values: dict[str, bytes]) -> Head:
    return Head(
        number=int(values["number"]),
        epoch=int(values["epoch"]),
        writer=values["writer"].decode(),
        boot_id=values["boot_id"].decode(),
        now_s=float(values["now_s"]),
        grace_s=float(values["grace_s"]),
        grace_until_s=float(values["grace_until_s"]),
    )


def _rows_of(elements: list[bytes]) -> list[LogRow]:
    """The decisions in a log whose elements are the commits; what the first release kept there is passed over."""
    parts = (element.partition(b":") for element in elements)
    return [row for num, _, packed in parts if num.isdigit() for row in unpack_rows(packed)]
