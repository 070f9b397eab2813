"""What must hold under a root after any kill: one whole step comes back, and whoever else looks says the same.

Raises AssertionError for what does not hold; what else is raised is an exception of the product.
"""

import argparse
import contextlib
import io
import json
from typing import Any

from rampmeter.checkpoints.cli import CheckpointsCommand
from rampmeter.layout import Root
from support.crash_victim import NUM_VALUES, Told, restored_step


class Lost(AssertionError):
    """A checkpoint that was told as committed, or had come back before, does not come back."""


def check_root(root: Root, told: Told, *, before: int = 0, num_values: int = NUM_VALUES) -> int:
    """The step that comes back, 0 for none: not before the last one that was told, not after the last one begun.

    `before` is what had come back before this victim started.
    """
    step = restored_step(root, num_values) or 0
    if step < max(before, told.committed):
        raise Lost(f"step {step} after step {before} and {told}")
    assert step <= max(before, told.begun), f"step {step} was never begun: {told}"
    if root.path.exists():
        _check_list(root, step)
        _check_verified(root, step)
    return step


def check_recovered(root: Root, max_states: int, size_bytes: int) -> float:
    """After the next start and one more save: no leftover, and the disk holds no more than so many states.

    Returns what it holds, in states.
    """
    assert root.step_names() == root.committed_steps(), "a leftover was not swept"
    held = sum(path.stat().st_size for path in root.path.rglob("*") if path.is_file()) / size_bytes
    assert held <= max_states * 1.1, f"{held:.2f} states on the disk"
    return held


def _check_list(root: Root, step: int) -> None:
    code, told = command("ls", root)
    assert code == 0
    found = [item for item in told["checkpoints"] if item["condition"] != "uncommitted"]
    assert {item["condition"] for item in found} <= {"whole", "half_removed"}, found
    whole = [item for item in found if item["condition"] == "whole"]
    assert (whole[0]["step"] if whole else 0) == step
    assert [item["step"] for item in whole] == [name.step for name in root.committed_steps()]


def _check_verified(root: Root, step: int) -> None:
    code, told = command("verify", root)
    found = told["checkpoints"]
    assert code == (0 if step else 1)
    assert all(item["verified"] for item in found), found
    assert (found[0]["step"] if found else 0) == step


def command(verb: str, root: Root) -> tuple[int, dict[str, Any]]:
    """`rampmeter checkpoints VERB ROOT --json`: its exit code and its answer."""
    parser, told = argparse.ArgumentParser(), io.StringIO()
    found = CheckpointsCommand()
    found.add_arguments(parser)
    with contextlib.redirect_stdout(told):
        code = found.run(parser.parse_args([verb, str(root.path), "--json"]))
    return code, json.loads(told.getvalue())
