"""What came back: the step, once every value was seen to be of it; and what is let go."""

import torch

from rampmeter import retention
from rampmeter.layout import Root
from rampmeter.restore import RestoredCheckpoint, restore


def loaded(root: Root, num_values: int = 1000, step: int | None = None) -> RestoredCheckpoint | None:
    """The newest checkpoint that is whole."""
    state = {"table": torch.full((num_values,), -1.0)}
    found = restore(root, state, step=step)
    if found is None:
        assert bool((state["table"] == -1.0).all())
        return None
    assert bool((state["table"] == float(found.step)).all())
    return found


def keep_newest(root: Root, num: int) -> None:
    """Let all but the newest ones go, and those that are pinned or proven."""
    retention.prune(root, retention.Keep(keep=num, keep_days=0), lambda: None)


def sweep_leftovers(root: Root, attempt: int) -> None:
    """What an attempt does at its start with what those before it have not committed."""
    retention.sweep(root, attempt, lambda: None)
