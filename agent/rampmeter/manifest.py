"""The manifest: what a checkpoint consists of. Its presence is the commit; this module never writes shards.

Values and their JSON form (`format: 1`). Reading is strict: a missing field is refused by name unless it came later and
has a default, an unknown one is ignored, a higher major format is refused with its number, and a digest over the
document itself makes sure that a damaged manifest is never believed.
"""

import dataclasses
import hashlib
import json
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rampmeter.core.errors import CorruptCheckpoint, FormatTooNew
from rampmeter.files import NoPlainFile, read_small
from rampmeter.layout import MANIFEST_NAME, StepName

FORMAT = 1
_SELF_DIGEST = "manifest_sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of the checkpoint. `rank` is the process that wrote it."""

    name: str
    num_bytes: int
    digest: str
    algorithm: str
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksEntry:
    """The side file with the raw block digests of all files, in the order of the manifest's list."""

    name: str
    num_bytes: int
    digest: str
    algorithm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What the checkpoint holds beside tensors."""

    data_position: bool
    rng: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds, up to the moment just before the commit."""

    stage_s: float
    stall_s: float
    lead_s: float
    write_s: float
    throttled_s: float
    blocked_s: float
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """The lease under which the bytes were written. `bytes_per_s` is the mean that was really used."""

    fence_epoch: int
    fence_counter: int
    bytes_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyNorm:
    """The L2 norm of the tensors under one key of the state."""

    key: str
    norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    rampmeter: str
    torch: str
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything known about one committed checkpoint. `parent` is the directory of the commit before it."""

    format: int
    job_uid: str
    job: str
    step: int
    attempt: int
    nonce: str
    parent: str | None
    world_size: int
    layout: str
    created: str
    files: tuple[FileEntry, ...]
    blocks: BlocksEntry
    block_bytes: int
    total_bytes: int
    extras: Extras
    config: dict[str, Any] | None
    code_commit: str | None
    container_digest: str | None
    timings: Timings
    lease: LeaseRecord | None
    versions: Versions
    unchecked: tuple[str, ...]  # tensors whose values could not be checked for being finite
    norms: tuple[KeyNorm, ...] | None = None  # None = not asked for, or written before there were any

    def to_json(self) -> bytes:
        body = dataclasses.asdict(self)
        return json.dumps({**body, _SELF_DIGEST: _digest(body)}, indent=1, allow_nan=False).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Raises CorruptCheckpoint or FormatTooNew; the message names the field or the format."""
        document = _parse(content)
        claimed = document.pop(_SELF_DIGEST, None)
        if claimed is not None and claimed != _digest(document):
            raise CorruptCheckpoint(f"{MANIFEST_NAME} does not match its own digest")
        _check_format(document)
        if claimed is None:
            raise CorruptCheckpoint(f"{MANIFEST_NAME} lacks the field {_SELF_DIGEST!r}")
        manifest = typing.cast(Self, _decode(cls, document, ""))
        _check_sense(manifest)
        return manifest


def read_manifest(directory: Path) -> Manifest:
    """The manifest of one checkpoint; FileNotFoundError if it is not committed."""
    try:
        content = read_small(directory / MANIFEST_NAME)
    except NoPlainFile as error:
        raise CorruptCheckpoint(f"{MANIFEST_NAME} is no plain file") from error
    return Manifest.from_json(content)


def check_identity(manifest: Manifest, name: StepName) -> None:
    """CorruptCheckpoint if the directory was renamed or copied by hand: it is not what its name says."""
    found = StepName(step=manifest.step, attempt=manifest.attempt, nonce=manifest.nonce)
    if found != name:
        raise CorruptCheckpoint(f"the manifest in {name} belongs to {found}")


def _digest(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), default=list)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _parse(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpoint(f"{MANIFEST_NAME} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CorruptCheckpoint(f"{MANIFEST_NAME} is not a JSON object")
    return document


def _check_format(document: dict[str, Any]) -> None:
    found = document.get("format")
    if not isinstance(found, int):
        raise CorruptCheckpoint(f"{MANIFEST_NAME} lacks the field 'format'")
    if found > FORMAT:
        raise FormatTooNew(
            f"{MANIFEST_NAME} has format {found}, this reader knows {FORMAT}: use a newer rampmeter"
        )


def _check_sense(manifest: Manifest) -> None:
    """What has the right types and its digest, and still is nobody's checkpoint: all readers count on this."""
    blocks = manifest.blocks
    names = [blocks.name, *(file.name for file in manifest.files)]
    sizes = [blocks.num_bytes, *(file.num_bytes for file in manifest.files)]
    _require(len(set(names)) == len(names), "files", "names a file twice")
    for name in names:
        is_plain = name not in ("", ".", "..") and "/" not in name and "\0" not in name
        _require(is_plain, "files", f"names no file of the checkpoint's own: {name!r}")
    _require(min(sizes) >= 0, "files", "has a negative size")
    for field, least in (("block_bytes", 1), ("world_size", 1), ("total_bytes", 0)):
        _require(getattr(manifest, field) >= least, field, f"must be at least {least}")


def _require(holds: bool, field: str, why: str) -> None:
    if not holds:
        raise CorruptCheckpoint(f"{MANIFEST_NAME}: field {field!r} {why}")


def _decode(kind: Any, value: Any, where: str) -> Any:
    """Turn parsed JSON into the annotated type; CorruptCheckpoint names the field that does not fit."""
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        chosen = next(part for part in typing.get_args(kind) if part is not type(None))
        return None if value is None else _decode(chosen, value, where)
    if origin is tuple and isinstance(value, list):
        item_kind = typing.get_args(kind)[0]
        return tuple(_decode(item_kind, item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return value
    if kind is float and type(value) is int:
        return float(value)
    if origin is None and type(value) is kind:
        return value
    raise CorruptCheckpoint(f"{MANIFEST_NAME}: field {where!r} has the wrong type")


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise CorruptCheckpoint(f"{MANIFEST_NAME}: field {where!r} is not an object")
    hints = typing.get_type_hints(kind)
    parts = {}
    for field in dataclasses.fields(kind):
        path = f"{where}.{field.name}" if where else field.name
        if field.name not in value:
            if field.default is not dataclasses.MISSING:
                continue
            raise CorruptCheckpoint(f"{MANIFEST_NAME} lacks the field {path!r}")
        parts[field.name] = _decode(hints[field.name], value[field.name], path)
    return kind(**parts)
