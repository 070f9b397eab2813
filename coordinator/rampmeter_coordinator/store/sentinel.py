"""Redis with Sentinel: `redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB`, and which server is the master just now.

Sentinel replicates without waiting: a fail-over may lose what the old master had confirmed. That is noticed from the
server's run id and from commit numbers, and covered by grace. It is only safe if a master that lost its replicas stops
taking writes, so a master without min-replicas-to-write is refused.
"""

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from rampmeter.core.errors import ConfigError
from rampmeter_coordinator.store.connection import check_server, pool_options

SCHEME = "redis+sentinel://"
_EXAMPLE = f"{SCHEME}HOST1:26379,HOST2:26379,HOST3:26379/SERVICE/0"
_PORT = 26379
_TIMEOUT_S = 0.5
_DEFAULT_LAG_S = 10.0
_SLACK_S = 2.0
"""A master counts its replicas once a second, and they report once a second."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelAddress:
    """Where to ask, for which service, and how to log in to its master."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    database: int
    username: str | None
    password: str | None


def parse_sentinel(url: str) -> SentinelAddress:
    """The parts of a Sentinel URL. Raises ConfigError with an example."""
    where, _, path = url.removeprefix(SCHEME).partition("/")
    service, _, database = path.partition("/")
    login, _, hosts = where.rpartition("@")
    username, _, password = login.partition(":")
    try:
        parts = [urlsplit(f"//{host}") for host in hosts.split(",")]
        sentinels = tuple((part.hostname or "", part.port or _PORT) for part in parts)
        number = int(database or 0)
    except ValueError:
        sentinels, number = (), 0
    if not service or not sentinels or not all(host for host, _ in sentinels):
        raise ConfigError(f"store: a Sentinel URL must look like {_EXAMPLE}")
    return SentinelAddress(
        sentinels=sentinels,
        service=service,
        database=number,
        username=unquote(username) or None,
        password=unquote(password) or None,
    )


class SentinelServer:
    """Asks the sentinels whenever the master may be another one."""

    stays = False

    def __init__(self, address: SentinelAddress) -> None:
        self._address = address
        self._master: tuple[str, int] | None = None
        self.overlap_s = _DEFAULT_LAG_S + _SLACK_S

    async def find(self) -> Redis:
        host, port = await self._ask()
        client = self._client(host, port)
        try:
            await self._check(client, f"{host}:{port}")
        except BaseException:
            await client.aclose()
            raise
        if self._master != (host, port):
            log.info("Sentinel service %s: the master is %s:%d", self._address.service, host, port)
            self._master = (host, port)
        return client

    async def _ask(self) -> tuple[str, int]:
        said = "no answer"
        for host, port in self._address.sentinels:
            sentinel = Redis(
                host=host,
                port=port,
                socket_timeout=_TIMEOUT_S,
                socket_connect_timeout=_TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
            )
            try:
                ask: Awaitable[Any] = sentinel.execute_command(  # type: ignore[no-untyped-call]
                    "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service
                )
                found = await ask
            except (RedisError, OSError, TimeoutError) as error:
                said = f"{host}:{port}: {type(error).__name__}"
                continue
            finally:
                await sentinel.aclose()
            if found:
                return _text(found[0]), int(found[1])
            said = f"{host}:{port} does not know service {self._address.service}"
        raise RedisConnectionError(f"no sentinel knows the master ({said})")

    def _client(self, host: str, port: int) -> Redis:
        pool = BlockingConnectionPool(
            host=host,
            port=port,
            db=self._address.database,
            username=self._address.username,
            password=self._address.password,
            **pool_options(),
        )
        return Redis(connection_pool=pool)

    async def _check(self, client: Redis, where: str) -> None:
        info: dict[str, Any] = await client.info()
        if info.get("role") != "master":
            raise RedisConnectionError(f"{where} is no master")
        if "min_slaves_good_slaves" not in info:  # there only if both settings are above 0
            raise ConfigError(
                f"the Redis master {where} takes writes without replicas: after a fail-over there could be two; "
                "set min-replicas-to-write to 1 or more on every server of the service"
            )
        check_server(info)
        self.overlap_s = await _max_lag_s(client) + _SLACK_S


async def _max_lag_s(client: Redis) -> float:
    try:
        found = await client.config_get("min-replicas-max-lag")
        return float(found["min-replicas-max-lag"] or _DEFAULT_LAG_S)
    except (ResponseError, KeyError):  # CONFIG may be forbidden
        return _DEFAULT_LAG_S


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
