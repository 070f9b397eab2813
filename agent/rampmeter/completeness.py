"""Names what a checkpoint would need so that a run goes on from it as if nothing had happened, and does not have.

Looks at the user's state and at what is recorded beside it; says it once. Only what can be seen is named: a gradient
scaler or a second data set that nobody put into the state cannot be.
"""

import logging
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rampmeter.belonging import DATA_WORDS
from rampmeter.provenance import Provenance
from rampmeter.state import has_data_position

_log = logging.getLogger("rampmeter")


class Completeness:
    """Looks at the first state that it is shown, and is silent from then on."""

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._told = False

    def tell(self, parts: Mapping[str, Any]) -> None:
        """Log what lacks: a warning where a resumed run would be another one, else for the record only."""
        if self._told:
            return
        self._told = True
        lacking = missing(parts)
        if lacking:
            _log.warning(
                "checkpoints lack %s: a run that goes on from one will not be the one that was interrupted",
                ", ".join(lacking),
            )
        if self._provenance.lacking:
            _log.info("checkpoints do not say their %s", ", ".join(self._provenance.lacking))


def missing(parts: Mapping[str, Any]) -> list[str]:
    """What changes the resulting model and is seen not to be in the state."""
    found = []
    if any(isinstance(value, nn.Module) for value in parts.values()):
        if not any(isinstance(value, Optimizer) for value in parts.values()):
            found.append("the optimizer")
        if not has_data_position(parts) and not any(
            word in key.lower() for key in parts for word in DATA_WORDS
        ):
            found.append("the position in the data (an object with state_dict, such as StatefulDataLoader)")
    if _is_scheduled(parts) and not any(isinstance(value, LRScheduler) for value in parts.values()):
        found.append("the learning-rate scheduler")
    return found


def _is_scheduled(parts: Mapping[str, Any]) -> bool:
    """Whether a scheduler has ever been made for an optimizer of the state: it marks the parameter groups."""
    optimizers = (value for value in parts.values() if isinstance(value, Optimizer))
    return any("initial_lr" in group for optimizer in optimizers for group in optimizer.param_groups)
