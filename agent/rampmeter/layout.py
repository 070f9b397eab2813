"""What stands where under a root, and in which order checkpoints count.

The root is the authority for attempt numbers: a claim is a file that only one process can create. Checkpoints are
ordered by (attempt, step) as integers, so that a stopped attempt that wakes up can never become the future.
This module never deletes, never opens a shard, and never treats "not permitted" as "nothing there".
"""

import json
import os
import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rampmeter.core.clock import Clock, SystemClock, wall_time
from rampmeter.core.errors import ConfigError
from rampmeter.files import NoPlainFile, create_once, exists, read_small, replace_file, sync_directory
from rampmeter.oddities import Oddities

MANIFEST_NAME = "MANIFEST.json"
BLOCKS_NAME = "BLOCKS"
METADATA_NAME = ".metadata"
JOB_UID_NAME = "JOB_UID"
ATTEMPTS_NAME = "attempts"

_JOB_UID = re.compile(r"[0-9a-f]{32}")
_STEP_NAME = re.compile(r"step-(\d{8,})\.a(\d{5,})\.([0-9a-f]{8,64})")
_CLAIM_NAME = re.compile(r"\d{5,}")
_FOREIGN_FILE = re.compile(r".*\.(pt|pth|ckpt|bin|safetensors|distcp)")
_FOREIGN_DIRECTORY = re.compile(r"checkpoint-\d+|global_step\d+|iter_\d+|step[-_]?\d+")
_NUM_EMPTY_READS = 20
_EMPTY_READ_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class StepName:
    """The name of a checkpoint's directory. Instances sort in the order in which checkpoints count.

    `nonce` is fresh for each save, so that a second save of one step never meets the leftovers of the first.
    """

    attempt: int
    step: int
    nonce: str

    def __str__(self) -> str:
        return f"step-{self.step:08d}.a{self.attempt:05d}.{self.nonce}"

    @classmethod
    def fresh(cls, *, step: int, attempt: int) -> Self:
        """A name for a save that starts now."""
        return cls(step=step, attempt=attempt, nonce=secrets.token_hex(4))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The name in parts, or None if `text` is not one of ours."""
        found = _STEP_NAME.fullmatch(text)
        if found is None:
            return None
        return cls(step=int(found[1]), attempt=int(found[2]), nonce=found[3])


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One attempt's claim. `nonce` is random: equal number and nonce mean the same start of the job."""

    number: int
    nonce: str


class Root:
    """The directory that holds one job's checkpoints. Making an instance touches nothing."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self.path = Path(path)
        self.odd = Oddities()
        self._clock = clock or SystemClock()

    def ensure_job_uid(self) -> str:
        """The job's identity, 32 hex characters; created on first use, the same for all who race.

        ConfigError if the file holds anything else; OSError if the root cannot be made or read.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / JOB_UID_NAME
        if not file.exists():
            create_once(file, secrets.token_hex(16).encode())
        for _ in range(_NUM_EMPTY_READS):
            text = _job_uid_in(file)
            if text:
                break
            self._clock.sleep(_EMPTY_READ_PAUSE_S)
        if not _JOB_UID.fullmatch(text):
            raise ConfigError(
                f"{file} does not hold a job uid (32 hex characters); "
                "if no process of this job is running, delete the file"
            )
        return text

    def claim_attempt(self, at_least: int = 1) -> Claim:
        """Claim the next attempt number, `at_least` or above; no two processes ever get the same."""
        directory = self.path / ATTEMPTS_NAME
        directory.mkdir(parents=True, exist_ok=True)
        sync_directory(self.path)
        while True:
            newest = self._newest_claim_number()
            claim = Claim(number=max((newest or 0) + 1, at_least), nonce=secrets.token_hex(16))
            if create_once(directory / f"{claim.number:05d}", _claim_record(claim)):
                return claim

    def newest_claim(self) -> Claim | None:
        """The claim with the highest number, or None. An unreadable record has an empty nonce: it is nobody's."""
        number = self._newest_claim_number()
        if number is None:
            return None
        file = self.path / ATTEMPTS_NAME / f"{number:05d}"
        try:
            nonce = json.loads(read_small(file))["nonce"]
        except (NoPlainFile, ValueError, KeyError, TypeError):
            nonce = ""
        return Claim(number=number, nonce=str(nonce))

    def claim_files(self) -> list[Path]:
        """The records of all claims, the newest first."""
        directory = self.path / ATTEMPTS_NAME
        names = [name for name in _names_in(directory) if _CLAIM_NAME.fullmatch(name)]
        return [directory / name for name in sorted(names, key=int, reverse=True)]

    def _newest_claim_number(self) -> int | None:
        newest = next(iter(self.claim_files()), None)
        return None if newest is None else int(newest.name)

    def step_names(self) -> list[StepName]:
        """All directories named like ours, committed or not, newest first."""
        parsed = (StepName.parse(name) for name in _names_in(self.path))
        return sorted((name for name in parsed if name is not None), reverse=True)

    def is_committed(self, name: StepName) -> bool:
        """Whether a manifest stands there. PermissionError if that cannot be seen."""
        return exists(self.directory(name) / MANIFEST_NAME)

    def committed_steps(self) -> list[StepName]:
        """The committed checkpoints, newest first; nothing is verified here.

        One that cannot be looked into is passed over and told of; OSError if there is no other.
        """
        found, refusals = [], []
        for name in self.step_names():
            try:
                if self.is_committed(name):
                    found.append(name)
            except OSError as error:
                refusals.append(error)
                self.odd.tell(name, str(error))
        if refusals and not found:
            raise refusals[0]
        return found

    def directory(self, name: StepName) -> Path:
        return self.path / str(name)

    def read_latest(self) -> StepName | None:
        """What the pointer names. A hint only: it may be stale, missing or damaged."""
        try:
            text = read_small(self.path / "LATEST").decode("ascii", "replace")
        except (FileNotFoundError, NoPlainFile):
            return None
        return StepName.parse(text.strip())

    def replace_latest(self, name: StepName) -> None:
        """Move the pointer; OSError if that did not work within its retries."""
        replace_file(self.path / "LATEST", f"{name}\n".encode(), clock=self._clock)

    def foreign_checkpoints(self) -> list[str]:
        """Names of entries in the root that look like checkpoints of another writer, sorted.

        What cannot be looked into, such as `lost+found`, is judged by its name alone.
        """
        return sorted(
            name
            for name in _names_in(self.path)
            if StepName.parse(name) is None and _looks_foreign(self.path / name)
        )

    def write_plan_bytes(self, content: bytes) -> None:
        """Keep the coordinator's last Plan for a start without it."""
        replace_file(self.path / "plan.json", content, clock=self._clock)

    def remove_plan(self) -> None:
        """Forget the Plan."""
        (self.path / "plan.json").unlink(missing_ok=True)

    def read_plan_bytes(self) -> bytes | None:
        """The Plan kept last, or None if there never was one."""
        try:
            return read_small(self.path / "plan.json")
        except FileNotFoundError:
            return None


def _claim_record(claim: Claim) -> bytes:
    record = {
        "nonce": claim.nonce,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "claimed_at": wall_time(),
    }
    return json.dumps(record).encode()


def _job_uid_in(file: Path) -> str:
    try:
        return read_small(file).decode("ascii", "replace").strip()
    except NoPlainFile as error:
        raise ConfigError(f"{file} {error.strerror}, if no process of this job is running") from error


def _names_in(directory: Path) -> list[str]:
    """The names in a directory; a directory that does not exist has none."""
    try:
        return [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return []


def _looks_foreign(entry: Path) -> bool:
    if entry.name == METADATA_NAME or _FOREIGN_FILE.fullmatch(entry.name):
        return True
    if not entry.is_dir():
        return False
    if _FOREIGN_DIRECTORY.fullmatch(entry.name):
        return True
    try:
        names = _names_in(entry)
    except OSError:
        return False
    return any(name == METADATA_NAME or _FOREIGN_FILE.fullmatch(name) for name in names)
