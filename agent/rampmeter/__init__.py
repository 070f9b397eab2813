"""Rampmeter's agent: checkpoints that a coordinator spreads, paces and times. Torch is imported only when used."""

from typing import TYPE_CHECKING, Any

from rampmeter.core.errors import (
    CommitError,
    ConfigError,
    CoordinatorUnavailable,
    CorruptCheckpoint,
    ForeignCheckpoints,
    FormatTooNew,
    LeaseLost,
    ProtocolError,
    RampmeterError,
    RequestRefused,
    RestoreError,
    SavesFailing,
    StaleAttempt,
)

if TYPE_CHECKING:
    from rampmeter.checkpointer import Checkpointer

__version__ = "0.1.0"

__all__ = [
    "Checkpointer",
    "CommitError",
    "ConfigError",
    "CoordinatorUnavailable",
    "CorruptCheckpoint",
    "ForeignCheckpoints",
    "FormatTooNew",
    "LeaseLost",
    "ProtocolError",
    "RampmeterError",
    "RequestRefused",
    "RestoreError",
    "SavesFailing",
    "StaleAttempt",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "Checkpointer":
        import random  # noqa: PLC0415 - with the rest that is only needed where it is used

        before = random.getstate()
        try:
            from rampmeter.checkpointer import Checkpointer  # noqa: PLC0415 - torch only when it is used
        except ModuleNotFoundError as error:
            package = (error.name or "").split(".")[0]
            if package not in ("torch", "numpy", "xxhash"):
                raise
            needed = f"rampmeter.Checkpointer needs {package}: pip install 'rampmeter[torch]'"
            raise ModuleNotFoundError(needed, name=package) from error
        finally:
            # httpx imports rich where that is installed, which draws a number: no training run must see that.
            random.setstate(before)
        return Checkpointer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
