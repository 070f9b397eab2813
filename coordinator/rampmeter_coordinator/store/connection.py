"""The way to the one Redis server that takes writes: found, checked, and found anew when another may have its place.

What cannot be kept is said within a second or two: time-outs are short, a dropped connection is tried once more, and
nothing else is retried here, because whoever waits for a commit has a retry of its own. Every error of Redis comes out
as StoreUnavailable; a server that may drop what it is given is a ConfigError at start.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.errors import StoreUnavailable

TIMEOUT_S = 1.0
CALL_LIMIT_S = 5.0
"""Whatever a client library waits for: whoever waits for a commit must hear that it is not known to be kept."""

_MAX_CONNECTIONS = 16
_MOVED = (ReadOnlyError, RedisConnectionError, RedisTimeoutError, OSError, TimeoutError)

log = logging.getLogger(__name__)

T = TypeVar("T")


class Finder(Protocol):
    """Where the server is. `stays`: it has one address for ever; `overlap_s`: how long two servers may take writes."""

    stays: bool
    overlap_s: float

    async def find(self) -> Redis:
        """A client of the server that takes writes. Raises ConfigError, or what Redis raises."""
        ...


class FixedServer:
    """The server of a URL; its client finds the way back by itself."""

    stays = True
    overlap_s = 0.0

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def find(self) -> Redis:
        check_server(await self._client.info())
        return self._client


class Connection:
    """Calls the server through `call`; one instance per store."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._client: Redis | None = None

    @property
    def overlap_s(self) -> float:
        """For how long a server that was replaced may still have taken writes."""
        return self._finder.overlap_s

    async def call(self, work: Callable[[Redis], Awaitable[T]]) -> T:
        """The result of `work(client)`. Raises StoreUnavailable; the first call also ConfigError."""
        first = self._client is None
        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                return await work(await self._found())
        except ConfigError as error:
            if first:
                raise
            raise StoreUnavailable(str(error)) from error
        except (RedisError, OSError, TimeoutError) as error:
            if isinstance(error, _MOVED) and not self._finder.stays:
                await self.close()
            # Loading, read-only, no replicas, out of memory, timed out: all the same to who waits for a commit.
            text = str(error) if isinstance(error, ResponseError) else type(error).__name__
            raise StoreUnavailable(f"Redis: {text}") from error

    async def close(self) -> None:
        """Close every connection; the next call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _found(self) -> Redis:
        if self._client is None:
            self._client = await self._finder.find()
        return self._client


def client_of(url: str) -> Redis:
    """A client that waits neither long nor for ever. Raises ConfigError for a URL that is none."""
    try:
        pool = BlockingConnectionPool.from_url(url, **pool_options())
    except ValueError as error:
        raise ConfigError(f"store: {error}") from None
    return Redis(connection_pool=pool)


def pool_options() -> dict[str, Any]:
    """Options of every connection pool of ours."""
    return {
        "max_connections": _MAX_CONNECTIONS,
        "timeout": TIMEOUT_S,
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
        # A connection that an earlier server process has dropped fails once; a time-out is not worth another one.
        "retry": Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
    }


def check_server(info: dict[str, Any]) -> None:
    """Refuse a server that may drop records (ConfigError); warn of one that forgets them when it restarts."""
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"the Redis server's maxmemory-policy is {policy}: it may drop leases; "
            "set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in redis.conf)"
        )
    if not info.get("aof_enabled", 1):
        log.warning(
            "the Redis server has no append-only file: a restart of it loses leases and costs a grace period "
            "(set appendonly yes)"
        )
