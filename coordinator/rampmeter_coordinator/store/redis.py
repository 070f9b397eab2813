"""The store for replicas: Redis or Valkey, keys `rm:{POOL}:head`, `:records` and `:log` (one slot per pool).

One script (commit.lua) keeps a batch if its epoch and number fit, so that a deposed coordinator can write nothing.
Records have no expiry: dropping one is a decision of the ledger. A server that may evict keys is refused at start.
Time-outs are short, because a coordinator that waits for its store answers nobody.
"""

import json
from collections.abc import Awaitable
from importlib.resources import files
from typing import Any, TypeVar, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.errors import Fenced, LostCommits, StoreUnavailable
from rampmeter_coordinator.store.protocol import LOG_ROWS, Batch, Head, LogRow, StoredPool

_SCRIPT = (files(__package__) / "commit.lua").read_text()
_TIMEOUT_S = 1.0

T = TypeVar("T")


class RedisStore:
    """Use `open`. `run_id` is the server process: another one at the next load may have lost the newest commits."""

    def __init__(self, client: Redis, *, run_id: str, log_rows: int = LOG_ROWS) -> None:
        self._client = client
        self._run_id = run_id
        self._log_rows = log_rows
        self._commit = client.register_script(_SCRIPT)

    @classmethod
    async def open(cls, url: str, *, log_rows: int = LOG_ROWS) -> "RedisStore":
        """Connect and check the server's settings. Raises ConfigError or StoreUnavailable."""
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=16,
                timeout=_TIMEOUT_S,
                socket_timeout=_TIMEOUT_S,
                socket_connect_timeout=_TIMEOUT_S,
                retry=Retry(NoBackoff(), 1),
            )
        except ValueError as error:
            raise ConfigError(f"store: {error}") from None
        return await cls.start(Redis(connection_pool=pool), log_rows=log_rows)

    @classmethod
    async def start(cls, client: Redis, *, log_rows: int = LOG_ROWS) -> "RedisStore":
        """A store over `client`, if that server keeps what it is given."""
        try:
            info: dict[str, Any] = await _reach(client.info())
            _refuse_eviction(info)
        except BaseException:
            await client.aclose()
            raise
        return cls(client, run_id=str(info.get("run_id", "")), log_rows=log_rows)

    async def load(self, pool: str) -> StoredPool | None:
        keys = _keys(pool)
        pipeline = self._client.pipeline(transaction=True)
        pipeline.hgetall(keys[0])
        pipeline.hgetall(keys[1])
        head, records = await _reach(pipeline.execute())
        if not head:
            return None
        return StoredPool(
            head=_head({name.decode(): value for name, value in head.items()}),
            records={key.decode(): value for key, value in records.items()},
            meta=head[b"meta"],
            contiguous=head[b"run_id"].decode() == self._run_id,
        )

    async def commit(self, batch: Batch) -> None:
        verdict, epoch, number = await _reach(
            self._commit(keys=_keys(batch.pool), args=_arguments(batch, self._run_id, self._log_rows))
        )
        if verdict == b"fenced":
            raise Fenced(f"pool {batch.pool}: epoch {epoch} with commit {number} has taken over")
        if verdict == b"lost":
            raise LostCommits(
                f"pool {batch.pool}: the store is at commit {number}, but it had kept {batch.head.number - 1}"
            )

    async def log(self, pool: str) -> list[LogRow]:
        """The newest decisions, oldest first."""
        found: list[bytes] = await _reach(
            cast(Awaitable[list[bytes]], self._client.lrange(_keys(pool)[2], 0, -1))
        )
        return [_log_row(row) for row in found]

    async def close(self) -> None:
        await self._client.aclose()


def _refuse_eviction(info: dict[str, Any]) -> None:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"the Redis server's maxmemory-policy is {policy}: it may drop leases; "
            "set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in redis.conf)"
        )


async def _reach(work: Awaitable[T]) -> T:
    try:
        return await work
    except (RedisError, OSError, TimeoutError) as error:
        # Loading, read-only replica, out of memory, refused, timed out: all the same to who waits for a commit.
        text = str(error) if isinstance(error, ResponseError) else type(error).__name__
        raise StoreUnavailable(f"Redis: {text}") from error


def _keys(pool: str) -> list[str]:
    return [f"rm:{{{pool}}}:head", f"rm:{{{pool}}}:records", f"rm:{{{pool}}}:log"]


def _arguments(batch: Batch, run_id: str, log_rows: int) -> list[str | bytes | int]:
    head = _head_values(batch, run_id)
    changed = {key: value for key, value in batch.changes.records.items() if value is not None}
    deleted = [key for key, value in batch.changes.records.items() if value is None]
    counts = [len(head), len(changed), len(deleted), len(batch.log)]
    arguments: list[str | bytes | int] = [
        batch.head.epoch,
        batch.head.number,
        batch.head.writer,
        log_rows,
        *counts,
    ]
    for mapping in (head, changed):
        for key, value in mapping.items():
            arguments += (key, value)
    return [*arguments, *deleted, *(_log_bytes(row) for row in batch.log)]


def _head_values(batch: Batch, run_id: str) -> dict[str, str | bytes]:
    head = batch.head
    return {
        "number": str(head.number),
        "epoch": str(head.epoch),
        "writer": head.writer,
        "boot_id": head.boot_id,
        "now_s": repr(head.now_s),
        "grace_s": repr(head.grace_s),
        "grace_until_s": repr(head.grace_until_s),
        "run_id": run_id,
        "meta": batch.changes.meta,
    }


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


def _log_bytes(row: LogRow) -> bytes:
    return b'{"now_s":%s,"command":%s,"replies":%s}' % (repr(row.now_s).encode(), row.command, row.replies)


def _log_row(text: bytes) -> LogRow:
    row = json.loads(text)
    command, replies = (
        json.dumps(row[name], separators=(",", ":")).encode() for name in ("command", "replies")
    )
    return LogRow(now_s=row["now_s"], command=command, replies=replies)
