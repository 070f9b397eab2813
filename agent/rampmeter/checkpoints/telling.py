"""Checkpoints as people and programs read them: tables of at most 80 columns, and one JSON object an answer."""

import dataclasses
import json
import textwrap
from collections.abc import Sequence
from typing import Any

from rampmeter.checkpoints.survey import Found, Survey
from rampmeter.core.units import format_bytes, format_duration
from rampmeter.manifest import Manifest
from rampmeter.misplaced import adoption, root_above

_COLUMNS = 80
_GAP = "  "


def as_json(document: dict[str, Any]) -> str:
    return json.dumps(document) + "\n"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def wrapped(text: str, indent: str = "") -> str:
    """A sentence in lines; a path is never cut in two."""
    return textwrap.fill(
        text,
        _COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def count(number: int, thing: str) -> str:
    """`1 checkpoint`, `3 checkpoints`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


# -- ls ----------------------------------------------------------------------------------------------------------


def list_text(found: Survey) -> str:
    """All that stands under a root: one line each, newest first, then what is wrong with whom."""
    parts = [_head(found)]
    if found.found:
        rows: list[tuple[str, ...]] = [("directory", "state", "saved", "size", "")]
        rows += [_row(item) for item in found.found]
        parts.append("\n".join(table(rows)))
    reasons = [wrapped(f"{item.name}: {item.why}") for item in found.found if item.why]
    if reasons:
        parts.append("\n".join(reasons))
    if found.foreign:
        parts.append(wrapped(foreign_advice(found)))
    above = None if found.found else root_above(found.root)
    if above is not None:
        parts.append(wrapped(f"No job has begun here; {above} is the root of one."))
    return "\n\n".join(parts) + "\n"


def _head(found: Survey) -> str:
    manifests = [item.manifest for item in found.found if item.manifest is not None]
    job = f"job {manifests[0].job}, " if manifests else ""
    num = sum(item.condition.is_committed for item in found.found)
    total = f", {format_bytes(sum(manifest.total_bytes for manifest in manifests))}" if manifests else ""
    return f"{found.root.path}: {job}{count(num, 'checkpoint') if num else 'no checkpoints'}{total}"


def _row(item: Found) -> tuple[str, ...]:
    manifest = item.manifest
    return (
        str(item.name),
        item.condition.replace("_", " "),
        "" if manifest is None else _minute(manifest.created),
        "" if manifest is None else format_bytes(manifest.total_bytes),
        ", ".join(marks(item)),
    )


def _minute(created: str) -> str:
    """`2026-11-30 09:13`, in UTC."""
    return created[: len("2026-11-30T09:13")].replace("T", " ")


def marks(item: Found) -> list[str]:
    """What has been said of a checkpoint after its commit, and what has become of its history."""
    return ["pinned"] * item.pinned + ["proven"] * item.proven + ["left behind"] * item.left_behind


def foreign_advice(found: Survey) -> str:
    """What stands there beside ours, and what can be done about it."""
    way = adoption(found.root, found.foreign)
    return (
        f"Of another writer: {', '.join(found.foreign)}. Until it is gone a restore refuses this root: {way}"
        "move it elsewhere, or say fresh=True."
    )


def list_json(found: Survey) -> dict[str, Any]:
    return {
        "root": str(found.root.path),
        "job_uid": found.job_uid,
        "newest_attempt": found.newest_attempt,
        "checkpoints": [item_json(item) for item in found.found],
        "foreign": list(found.foreign),
    }


def item_json(item: Found) -> dict[str, Any]:
    """One checkpoint; `null` is what its manifest does not say because it cannot be read."""
    manifest = item.manifest
    return {
        "directory": str(item.name),
        "step": item.name.step,
        "attempt": item.name.attempt,
        "condition": item.condition,
        "why": item.why or None,
        "created": None if manifest is None else manifest.created,
        "num_bytes": None if manifest is None else manifest.total_bytes,
        "world_size": None if manifest is None else manifest.world_size,
        "pinned": item.pinned,
        "proven": item.proven,
        "left_behind": item.left_behind,
    }


# -- show --------------------------------------------------------------------------------------------------------


def show_text(item: Found) -> str:
    """Everything that is known about one checkpoint."""
    lines = [("directory", str(item.name)), ("state", item.condition.replace("_", " "))]
    if item.why:
        lines.append(("why", item.why))
    if marks(item):
        lines.append(("marks", ", ".join(marks(item))))
    if item.manifest is not None:
        lines += _facts(item.manifest)
    return "\n".join(table(lines)) + "\n"


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    timings, extras = manifest.timings, manifest.extras
    held = ["tensors"] + ["random states"] * extras.rng + ["data position"] * extras.data_position
    facts = [
        ("job", f"{manifest.job} ({manifest.job_uid})"),
        ("step", f"{manifest.step}, attempt {manifest.attempt}"),
        ("parent", manifest.parent or "none"),
        ("saved", manifest.created),
        ("size", f"{format_bytes(manifest.total_bytes)} in {count(len(manifest.files), 'file')}"),
        ("ranks", f"{manifest.world_size}"),
        ("holds", ", ".join(held)),
        ("digests", manifest.blocks.algorithm),
        ("versions", ", ".join(f"{k} {v}" for k, v in dataclasses.asdict(manifest.versions).items())),
    ]
    if timings.write_s:
        facts.append(
            (
                "took",
                f"{format_duration(timings.write_s)}, training stood still for {format_duration(timings.stall_s)}",
            )
        )
    if manifest.code_commit is not None:
        facts.append(("code", manifest.code_commit))
    if manifest.container_digest is not None:
        facts.append(("container", manifest.container_digest))
    if manifest.config is not None:
        facts.append(("config", json.dumps(manifest.config)))
    return facts


def show_json(item: Found) -> dict[str, Any]:
    """One checkpoint with its whole manifest."""
    manifest = None if item.manifest is None else json.loads(item.manifest.to_json())
    return item_json(item) | {"manifest": manifest}
