"""With which settings, code and container a checkpoint was made: recorded beside the state, never acted upon."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

CONTAINER_VARIABLE = "RAMPMETER_CONTAINER_DIGEST"
CODE_VARIABLE = "RAMPMETER_CODE_COMMIT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What is recorded beside the state: with which settings, code and container it was made."""

    config: dict[str, Any] | None
    code_commit: str | None
    container_digest: str | None

    @classmethod
    def of(cls, config: Mapping[str, Any] | None, code_commit: str | None) -> Self:
        """What was given, else what the environment says."""
        return cls(
            config=None if config is None else dict(config),
            code_commit=code_commit or os.environ.get(CODE_VARIABLE) or None,
            container_digest=os.environ.get(CONTAINER_VARIABLE) or None,
        )

    @property
    def lacking(self) -> list[str]:
        """What is not recorded, with the way to say it."""
        found = {
            "config (config=)": self.config,
            f"code commit (code_commit= or {CODE_VARIABLE})": self.code_commit,
            f"container digest ({CONTAINER_VARIABLE})": self.container_digest,
        }
        return [name for name, value in found.items() if value is None]
