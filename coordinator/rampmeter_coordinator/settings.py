"""What an operator sets: command line over environment over file. Values only, checked once, at start.

Every bad value is a ConfigError that names the file and key, the variable or the option; an unknown key is one too,
because a misspelt `capacity` must not become 1 GB/s. Nothing here opens anything but the file.
"""

import difflib
import logging
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rampmeter.core.errors import ConfigError
from rampmeter.core.fields import NAME, BadValue
from rampmeter_coordinator import reading
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.reading import Given
from rampmeter_coordinator.store.protocol import LOG_ROWS

DEFAULT_POOL = "default"
EMBEDDED_STORES = ("sqlite", "memory")
"""Stores inside one process: no other replica can share them."""

_DEFAULT_CAPACITY = 10**9

log = logging.getLogger(__name__)

Reader = Callable[[Given], Any]

_SERVER: Mapping[str, Reader] = {
    "host": reading.text,
    "port": reading.whole(0, 65535),
    "data_dir": reading.path,
    "store": reading.text,
    "synchronous": reading.one_of("normal", "full"),
    "log_rows": reading.whole(100, 10**8),
    "advertise_url": reading.http_url,
    "fresh": reading.flag,
}
_POOL: Mapping[str, tuple[str, Reader]] = {
    "capacity": ("capacity_bytes_per_s", reading.rate),
    "utilisation": ("utilisation", reading.share),
    "ttl": ("ttl_s", reading.duration(10, 3600)),
    "first_ttl": ("first_ttl_s", reading.duration(5, 3600)),
    "safe_for": ("safe_for_s", reading.duration(0, 30 * 86400)),
    "read_capacity": ("read_capacity_bytes_per_s", reading.rate),
    "shared_reads": ("shared_reads", reading.flag),
    "max_writers": ("max_writers", reading.whole(1, 10**6)),
    "max_streams": ("max_streams", reading.whole(1, 10**6)),
    "max_per_tenant": ("max_tenant_bytes_per_s", reading.rate),
    "enforced_share": ("enforced_share", reading.share_or_none),
    "max_stall_share": ("max_stall_share", reading.share),
    "base_price": ("base_price_gpu_s_per_byte", reading.number(0.0, 1.0)),
    "max_jobs": ("max_jobs", reading.whole(1, 10**6)),
    "check_every": ("check_every_s", reading.duration(1, 86400)),
}
VARIABLES: Mapping[str, str] = {
    "RAMPMETER_HOST": "host",
    "RAMPMETER_PORT": "port",
    "RAMPMETER_DATA_DIR": "data_dir",
    "RAMPMETER_STORE": "store",
    "RAMPMETER_SYNCHRONOUS": "synchronous",
    "RAMPMETER_ADVERTISE_URL": "advertise_url",
    "RAMPMETER_FRESH": "fresh",
    "RAMPMETER_CONFIG": "config",
    "RAMPMETER_CAPACITY": "capacity",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One coordinator. `fresh`: the operator states that no job was ever served from these pools.

    `advertise_url`: where other replicas reach this one; None = the address that it listens on.
    """

    pools: tuple[PoolConfig, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    data_dir: Path
    store: str = field(default="sqlite", repr=False)  # a Redis URL may hold a password
    synchronous: str = "normal"
    log_rows: int = LOG_ROWS
    advertise_url: str | None = None
    fresh: bool = False


def read_settings(options: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """Settings from command line options (None = not given), variables, and the file that they name."""
    _warn_of_misspelt(environ)
    given = {
        key: Given(value=environ[name], origin=f"variable {name}")
        for name, key in VARIABLES.items()
        if name in environ
    }
    given |= {
        key: Given(value=value, origin=f"option --{key.replace('_', '-')}")
        for key, value in options.items()
        if value is not None
    }
    config = given.pop("config", None)
    capacity = given.pop("capacity", None)
    from_file, pools = _read_file(config) if config is not None else ({}, ())
    values = {key: _SERVER[key](found) for key, found in (from_file | given).items()}
    values.setdefault("data_dir", _state_home(environ) / "rampmeter")
    settings = Settings(pools=_with_default(pools, capacity), **values)
    _check_store(settings, (from_file | given).get("store"))
    return settings


def _warn_of_misspelt(environ: Mapping[str, str]) -> None:
    """Only of what is almost ours: others put variables of that prefix there, too."""
    for name in environ:
        if name.startswith("RAMPMETER_") and name not in VARIABLES:
            for meant in difflib.get_close_matches(name, VARIABLES, n=1, cutoff=0.9):
                log.warning("variable %s is not known and is ignored; is %s meant?", name, meant)


def _check_store(settings: Settings, given: Given | None) -> None:
    urls = ("redis://", "rediss://", "unix://", "redis+sentinel://")
    if given and settings.store not in EMBEDDED_STORES and not settings.store.startswith(urls):
        raise given.refuse("sqlite, memory, or a URL such as redis://HOST:6379/0")


def _with_default(pools: tuple[PoolConfig, ...], capacity: Given | None) -> tuple[PoolConfig, ...]:
    names = [pool.name for pool in pools]
    if capacity is not None:
        value = reading.rate(capacity)
        if pools and DEFAULT_POOL not in names:
            raise ConfigError(
                f"{capacity.origin}: is for pool {DEFAULT_POOL}, but the file has {', '.join(names)}"
            )
        pools = pools or (PoolConfig(name=DEFAULT_POOL, capacity_bytes_per_s=value),)
        return tuple(
            _with_budget(replace(pool, capacity_bytes_per_s=value), capacity.origin)
            if pool.name == DEFAULT_POOL
            else pool
            for pool in pools
        )
    if not pools:
        log.warning(
            "no pool is set: one pool '%s' with 1 GB/s (set RAMPMETER_CAPACITY or a file)", DEFAULT_POOL
        )
        return (PoolConfig(name=DEFAULT_POOL, capacity_bytes_per_s=_DEFAULT_CAPACITY),)
    return pools


def _read_file(config: Given) -> tuple[dict[str, Given], tuple[PoolConfig, ...]]:
    path = reading.path(config)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{config.origin}: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is no TOML: {error}") from None
    _refuse_unknown(content, ("server", "pools"), f"{path}")
    server = _table(content, "server", str(path))
    _refuse_unknown(server, _SERVER, f"{path}: server")
    pools = _table(content, "pools", str(path))
    return (
        {key: Given(value=value, origin=f"{path}: server.{key}") for key, value in server.items()},
        tuple(_read_pool(name, _table(pools, name, f"{path}: pools"), path) for name in pools),
    )


def _read_pool(name: str, table: Mapping[str, object], path: Path) -> PoolConfig:
    where = f"{path}: pools.{name}"
    try:
        NAME.check(name)
    except BadValue as error:
        raise ConfigError(f"{where}: the name {error}") from None
    _refuse_unknown(table, _POOL, where)
    if "capacity" not in table:
        raise ConfigError(f'{where}: capacity is missing, for example capacity = "2TB/s"')
    values = {
        _POOL[key][0]: _POOL[key][1](Given(value=value, origin=f"{where}.{key}"))
        for key, value in table.items()
    }
    return _with_budget(PoolConfig(name=name, **values), where)


def _with_budget(pool: PoolConfig, where: str) -> PoolConfig:
    if not pool.budget_bytes_per_s or not pool.read_budget_bytes_per_s:
        raise ConfigError(f"{where}: capacity times utilisation is below 1 B/s: nobody would ever be served")
    return pool


def _table(content: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
    table = content.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: {key} must be a table")
    return table


def _refuse_unknown(
    table: Mapping[str, object], known: Mapping[str, object] | tuple[str, ...], where: str
) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key}; known are {', '.join(known)}")


def _state_home(environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_STATE_HOME")
    return Path(home) if home else Path.home() / ".local" / "state"
