"""Whether a state has jumped since the checkpoint before: finite values, and training is lost all the same. Pure.

A norm is the L2 norm of all floating and complex tensors that stand under one key of the state; scalars, which count
steps, are no part of it. Keys are compared each by itself, so that weights that blew up cannot hide behind larger
tensors under another key. Nothing is compared that has no counterpart: a first save, a parent without norms, a new
key, one that was empty before.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rampmeter.core.errors import CommitError, ConfigError
from rampmeter.manifest import KeyNorm


@dataclass(frozen=True, slots=True, kw_only=True)
class NormLimit:
    """How far each norm of a save may be from that of its parent, up or down; `before` are the parent's norms."""

    max_ratio: float
    before: tuple[KeyNorm, ...] = ()


def checked_ratio(max_norm_ratio: Any) -> float | None:
    """ConfigError unless it is a number above 1, or None."""
    if max_norm_ratio is None:
        return None
    if type(max_norm_ratio) not in (int, float) or not 1.0 < max_norm_ratio < math.inf:
        raise ConfigError("max_norm_ratio must be a number above 1, or None for no check")
    return float(max_norm_ratio)


def joined(parts: Iterable[KeyNorm]) -> tuple[KeyNorm, ...]:
    """The norms of whole keys from those of their parts, whoever holds these; 1e200 is not squared on the way."""
    by_key = defaultdict(list)
    for part in parts:
        by_key[part.key].append(part.norm)
    return tuple(
        KeyNorm(key=key, norm=min(math.hypot(*by_key[key]), sys.float_info.max)) for key in sorted(by_key)
    )


def check_norms(limit: NormLimit, step: int, parent_step: int, norms: Iterable[KeyNorm]) -> None:
    """CommitError (`norm_jump`) that names the key whose norm has moved farthest, if that is farther than allowed."""
    found = {part.key: part.norm for part in norms}
    moved = [
        (_ratio(part.norm, found[part.key]), part) for part in limit.before if part.key in found and part.norm
    ]
    ratio, before = max(moved, key=lambda one: one[0], default=(1.0, None))
    if before is None or ratio <= limit.max_ratio:
        return
    raise CommitError(
        f"the norm of state[{before.key!r}] is {found[before.key]:.4g} and was {before.norm:.4g} in step "
        f"{parent_step}, more than max_norm_ratio={limit.max_ratio:g} apart. As long as that is so no step is saved. "
        f"If step {step} is lost, end the job: its next start goes on from step {parent_step}; if it is well, start "
        "the job with a larger max_norm_ratio",
        reason="norm_jump",
    )


def _ratio(before: float, now: float) -> float:
    """At least 1; infinity where nothing is left."""
    low, high = sorted((before, now))
    return high / low if low else math.inf
