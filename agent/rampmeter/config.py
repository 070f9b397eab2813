"""Settings of the agent: what the call says, else the environment, else the default. Bad values are named.

RAMPMETER=off makes a complete local checkpointer of it: own period, random phase, no coordinator.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from rampmeter.core.errors import ConfigError
from rampmeter.core.fields import NAME, BadValue
from rampmeter.core.messages import Survives

DEFAULT_POOL = "default"
DEFAULT_NOTICE_S = 120.0
"""Too long costs bandwidth for a save that is cut off; too short gives up one that could have been in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What an agent needs to know of its job. `coordinator` None = local.

    interval_min_s is hard, interval_max_s a wish; mtbf_s and restart_s what the user believes, None = learn.
    tenant: on whose account, where the pool caps tenants. notice_s: from the signal to the end of the process.
    survives: which failures the checkpoints in this pool are for.
    """

    name: str
    pool: str
    coordinator: str | None
    tenant: str | None
    num_gpus: int
    mtbf_s: float | None
    restart_s: float | None
    interval_min_s: float | None
    interval_max_s: float | None
    notice_s: float
    survives: Survives


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Who the job is and whom it asks, as the call says; None = see the environment.

    default: the job's name where nobody gives it one.
    """

    job: str | None = None
    pool: str | None = None
    coordinator: str | None = None
    tenant: str | None = None
    default: str = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """What the call says of failures. num_gpus None = one for each rank."""

    num_gpus: int | None = None
    mtbf_s: float | None = None
    restart_s: float | None = None
    survives: str = Survives.NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Between which times a save should be, as the call says."""

    interval_min_s: float | None = None
    interval_max_s: float | None = None
    notice_s: float | None = None


def job_settings(
    names: Names,
    beliefs: Beliefs,
    bounds: Bounds,
    *,
    num_ranks: int = 1,
    environment: Mapping[str, str] = os.environ,
) -> JobSettings:
    """Settings from arguments and RAMPMETER_* variables. ConfigError names the argument or variable at fault."""
    tenant = names.tenant or environment.get("RAMPMETER_TENANT") or None
    settings = JobSettings(
        name=_name("job", names.job or environment.get("RAMPMETER_JOB") or _as_name(names.default)),
        pool=_name("pool", names.pool or environment.get("RAMPMETER_POOL") or DEFAULT_POOL),
        coordinator=_coordinator(names.coordinator, environment),
        tenant=None if tenant is None else _name("tenant (or RAMPMETER_TENANT)", tenant),
        num_gpus=_whole("num_gpus", num_ranks if beliefs.num_gpus is None else beliefs.num_gpus),
        mtbf_s=_positive("mtbf_s", beliefs.mtbf_s),
        restart_s=_positive("restart_s", beliefs.restart_s),
        interval_min_s=_positive("interval_min_s", bounds.interval_min_s),
        interval_max_s=_positive("interval_max_s", bounds.interval_max_s),
        notice_s=_notice(bounds.notice_s, environment),
        survives=_survives(beliefs.survives),
    )
    low, high = settings.interval_min_s, settings.interval_max_s
    if low is not None and high is not None and low > high:
        raise ConfigError(f"interval_min_s ({low:g}) is above interval_max_s ({high:g})")
    return settings


def last_part(root: str | os.PathLike[str]) -> str:
    """What a job is called where nobody names it, made from the directory of its checkpoints."""
    return os.path.basename(os.path.abspath(root))  # noqa: PTH100, PTH119 - text, not a look-up


def whole_or_none(argument: str, value: int | None) -> int | None:
    """A count that may be left out; ConfigError names the argument."""
    if value is not None and (type(value) is not int or value < 1):
        raise ConfigError(f"{argument} must be an integer of at least 1, or None")
    return value


def _coordinator(given: str | None, environment: Mapping[str, str]) -> str | None:
    switch = environment.get("RAMPMETER", "on")
    if switch not in ("on", "off"):
        raise ConfigError("RAMPMETER must be `on` or `off`")
    url = given or environment.get("RAMPMETER_COORDINATOR") or None
    if switch == "off" or url is None:
        return None
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError("coordinator (or RAMPMETER_COORDINATOR) must be a URL like http://host:8000")
    return url


def _notice(given: float | None, environment: Mapping[str, str]) -> float:
    text = environment.get("RAMPMETER_NOTICE_S")
    if given is None and text:
        try:
            given = float(text)
        except ValueError:
            raise ConfigError("RAMPMETER_NOTICE_S must be a positive number of seconds") from None
    return _positive("notice_s (or RAMPMETER_NOTICE_S)", given) or DEFAULT_NOTICE_S


def _survives(given: str) -> Survives:
    try:
        return Survives(given)
    except ValueError:
        raise ConfigError("survives must be `node` or `site`") from None


def _name(argument: str, value: str) -> str:
    try:
        return NAME.check(value)
    except BadValue as error:
        raise ConfigError(f"{argument}: {error}") from None


def _as_name(text: str) -> str:
    """`text` with everything that a name may not hold replaced."""
    cleaned = re.sub(r"[^A-Za-z0-9._:@+=-]", "-", text).lstrip("._:@+=-")
    return cleaned[:128] or "job"


def _whole(argument: str, value: int) -> int:
    if type(value) is not int or value < 1:
        raise ConfigError(f"{argument} must be an integer of at least 1")
    return value


def _positive(argument: str, value: float | None) -> float | None:
    if value is not None and not (isinstance(value, int | float) and 0 < value < float("inf")):
        raise ConfigError(f"{argument} must be a positive number of seconds")
    return None if value is None else float(value)
