"""Whether who shares the root will be able to read what is written into it: umask and group. Pure."""

import stat
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Mode and group of the root; groups and umask of this process (None = unknown)."""

    mode: int
    group: int
    process_group: int
    umask: int | None


def cautions(owner: Owner) -> list[str]:
    """What a root that is meant for a group will hold that the group cannot use."""
    for_group = bool(owner.mode & (stat.S_IWGRP | stat.S_ISGID))
    if not for_group:
        return []
    found = []
    if owner.umask is not None and owner.umask & stat.S_IRGRP:
        found.append(
            f"the root is shared with group {owner.group}, but the umask {owner.umask:04o} hides checkpoints from it: "
            "umask 0027, or 0007 if others of the group also write"
        )
    if owner.group != owner.process_group and not owner.mode & stat.S_ISGID:
        found.append(
            f"the root is shared with group {owner.group}, but checkpoints will belong to group "
            f"{owner.process_group}: chmod g+s on the root, or start the job with newgrp"
        )
    return found
