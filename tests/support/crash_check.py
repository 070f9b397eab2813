"""What must hold under a root after any kill: one whole step comes back, and whoever else looks says the same.

Raises AssertionError for what does not hold; what else is raised is an exception of the product.
"""

import argparse
import contextlib
import io
import json
from pathlib import Path
from typing import Any

from rampmeter.checkpoints.cli import CheckpointsCommand
from rampmeter.files import meant_name
from rampmeter.layout import MANIFEST_NAME, Root
from rampmeter.manifest import read_manifest
from rampmeter.marks import Mark
from support.crash_victim import NUM_VALUES, Told, restored_step

MOST_METADATA_BYTES = 64 * 1024
"""Of a checkpoint: names, places, digests and random state; of a file beside the checkpoints."""


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

    To the byte: what is no tensor is measured, file by file, where a manifest or the layout of a root names it.
    Returns what it holds, in states.
    """
    names = root.committed_steps()
    assert root.step_names() == names, "a leftover was not swept"
    metadata = _bytes_beside(root) + sum(_metadata_bytes(root.directory(name), size_bytes) for name in names)
    tensors = sum(path.stat().st_size for path in root.path.rglob("*") if path.is_file()) - metadata
    assert tensors == len(names) * size_bytes, f"{tensors} bytes, but {len(names)} states of {size_bytes}"
    assert tensors <= max_states * size_bytes, f"{len(names)} states on the disk"
    return tensors / size_bytes


def _metadata_bytes(directory: Path, size_bytes: int) -> int:
    """What the files of a whole checkpoint hold beside its tensors, marks that were being put on it included."""
    manifest = read_manifest(directory)
    named = [file.name for file in manifest.files] + [manifest.blocks.name, MANIFEST_NAME]
    marks = [path.name for path in directory.iterdir() if (meant_name(path.name) or path.name) in tuple(Mark)]
    found = sum((directory / name).stat().st_size for name in named + marks) - size_bytes
    assert 0 < found < MOST_METADATA_BYTES, f"{found} bytes of {directory.name} are no tensors"
    return found


def _bytes_beside(root: Root) -> int:
    """What stands in the root beside its checkpoints: identity, claims, plan, pointer."""
    found = [
        path.stat().st_size
        for path in root.path.rglob("*")
        if path.is_file() and not path.relative_to(root.path).parts[0].startswith("step-")
    ]
    assert max(found) < MOST_METADATA_BYTES, f"{max(found)} bytes in one file beside the checkpoints"
    return sum(found)


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
