"""Checkpoints of another writer, made without torch: the pickle that torch.distributed.checkpoint would write."""

import pickle
import random
import sys
import types
from pathlib import Path


def put_foreign(directory: Path, shards: dict[str, int], *, items=("model.weight", "step")) -> Path:
    """A finished checkpoint: shards with so many bytes, then `.metadata` that names them."""
    directory.mkdir(parents=True)
    for name, num_bytes in shards.items():
        (directory / name).write_bytes(random.Random(name).randbytes(num_bytes))
    (directory / ".metadata").write_bytes(metadata(shards, items))
    return directory


def metadata(shards: dict[str, int], items) -> bytes:
    """What `pickle.dumps(Metadata(...))` gives with torch; classes of these names exist only for this call."""
    made = {
        "torch.distributed.checkpoint.metadata": ("Metadata", "MetadataIndex", "BytesStorageMetadata"),
        "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    }
    before = dict(sys.modules)
    classes = {}
    try:
        for module_name, names in made.items():
            module = types.ModuleType(module_name)
            for name in names:
                classes[name] = type(name, (), {"__module__": module_name})
                setattr(module, name, classes[name])
            parts = module_name.split(".")
            for depth in range(1, len(parts)):
                sys.modules.setdefault(".".join(parts[:depth]), types.ModuleType(parts[0]))
            sys.modules[module_name] = module
        found = _make(classes["Metadata"], state_dict_metadata={}, planner_data=None)
        found.state_dict_metadata = {item: _make(classes["BytesStorageMetadata"]) for item in items}
        found.storage_data = {
            _make(classes["MetadataIndex"], fqn=name): _make(
                classes["_StorageInfo"],
                relative_path=name,
                offset=num_bytes // 2,
                length=num_bytes - num_bytes // 2,
            )
            for name, num_bytes in shards.items()
        }
        return pickle.dumps(found)
    finally:
        for name in set(sys.modules) - set(before):
            del sys.modules[name]
        sys.modules.update(before)


def _make(kind, **fields):
    made = kind()
    made.__dict__.update(fields)
    return made
