"""What one rank reads of a checkpoint, and that it is verified before; no collective is left on this way."""

from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import (
    Metadata,
)

from rampmeter.core.errors import RestoreError
from rampmeter.layout import METADATA_NAME
from rampmeter.manifest import Manifest
from rampmeter.reading.pace import UNPACED, Pace
from rampmeter.verification import ByteRange, Verifier


class VerifiedReader(FileSystemReader):
    """Reads one checkpoint: `.metadata` is verified before it is unpickled, shards by whom `verifier` is asked to."""

    def __init__(self, directory: Path, manifest: Manifest, *, pace: Pace = UNPACED) -> None:
        super().__init__(directory)
        self.manifest = manifest
        self.pace = pace
        self.verifier = Verifier(directory, manifest, pace=pace)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self.verifier.verify_file(METADATA_NAME)
        return super().read_metadata(*args, **kwargs)


class PlannedLoad:
    """What one rank will read into `state_dict`, in place. Making it reads nothing; runs no collective."""

    def __init__(self, state_dict: dict[str, Any], reader: VerifiedReader, metadata: Metadata) -> None:
        self._reader = reader
        self._planner = DefaultLoadPlanner()
        self._planner.set_up_planner(state_dict, metadata)
        reader.set_up_storage_reader(metadata, is_coordinator=False)
        self._plan = self._planner.create_local_plan()

    @property
    def ranges(self) -> dict[str, list[ByteRange]]:
        """The parts of each file that it reads: to be verified before."""
        found: dict[str, list[ByteRange]] = {}
        for item in self._plan.items:
            place = self._reader.storage_data[item.storage_index]
            part = ByteRange(offset_bytes=place.offset, num_bytes=place.length)
            found.setdefault(place.relative_path, []).append(part)
        return found

    def read(self) -> None:
        """Read it. CorruptCheckpoint, and nothing was read, if a file is not as long as when it was verified.

        What changes while it is read is a RestoreError, and what that leaves is half read.
        """
        self._verify_sizes()
        try:
            self._reader.read_data(self._planner.finish_plan(self._plan), self._planner).wait()
        except (EOFError, RuntimeError, ValueError) as error:
            self._verify_sizes()
            names = ", ".join(sorted(self.ranges))
            raise RestoreError(
                f"{names} changed while being read: {type(error).__name__}: {error}; "
                "make the state anew and restore again"
            ) from error

    def _verify_sizes(self) -> None:
        for name in self.ranges:
            self._reader.verifier.verify_size(name)
