"""Reads a plan's TOML file. An unknown key or a value of the wrong type is refused by name, never skipped:
a misspelt `retention` must not become "the plan says nothing about retention".
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rampmeter.core.errors import ConfigError
from rampmeter.review import plan as words
from rampmeter.review import values
from rampmeter.review.plan import CheckpointPlan
from rampmeter.review.values import Reader

# Section -> key in the file -> (field of the section, reader).
SECTIONS: Mapping[str, Mapping[str, tuple[str, Reader]]] = {
    "run": {
        "name": ("name", values.text),
        "gpus": ("gpus", values.whole(1)),
        "nodes": ("nodes", values.whole(1)),
        "length": ("length_s", values.duration),
        "mtbf": ("mtbf_s", values.duration),
        "mtbf_measured": ("mtbf_measured", values.flag),
        "restart": ("restart_s", values.duration),
        "parallelism": ("parallelism", values.text),
        "price_per_gpu_hour": ("price_per_gpu_hour", values.price),
    },
    "size": {
        "parameters": ("parameters", values.count),
        "precision": ("precision", values.one_of(words.Precision)),
        "optimizer": ("optimizer", values.one_of(words.Optimizer)),
        "saved": ("saved", values.some_of(words.Part)),
        "total": ("planned_bytes", values.size),
    },
    "schedule": {
        "every": ("every_s", values.duration),
        "mode": ("mode", values.one_of(words.Mode)),
        "stall": ("stall_s", values.duration),
        "snapshot_is_copy": ("snapshot_is_copy", values.flag),
        "when_busy": ("when_busy", values.one_of(words.WhenBusy)),
        "phase": ("phase", values.one_of(words.Phase)),
    },
    "storage": {
        "name": ("name", values.text),
        "write_bandwidth": ("write_bytes_per_s", values.rate),
        "servers": ("num_servers", values.whole(1)),
        "sharded": ("sharded", values.flag),
        "other_jobs": ("num_other_jobs", values.whole(0)),
        "space": ("space_bytes", values.size),
        "price_per_tb_month": ("price_per_tb_month", values.price),
    },
    "commit": {
        "order": ("order", values.some_of(words.CommitStep)),
        "pointer_update": ("pointer_update", values.one_of(words.PointerUpdate)),
        "directory": ("directory", values.one_of(words.Directory)),
    },
    "data": {
        "resume": ("resume", values.one_of(words.Resume)),
        "epoch": ("epoch_s", values.duration),
        "tested": ("tested", values.flag),
    },
    "restore": {
        "layout": ("layout", values.one_of(words.Layout)),
        "spare_nodes": ("num_spare_nodes", values.whole(0)),
    },
    "retention": {
        "keep": ("keep", values.one_of(words.Keep)),
        "keep_last": ("keep_last", values.whole(0)),
        "one_per": ("one_per_s", values.duration),
        "milestones": ("milestones", values.flag),
        "delete_only_after_verified": ("deletes_only_after_verified", values.flag),
    },
    "validation": {
        "checksums": ("checksums", values.flag),
        "checked_on_load": ("checked_on_load", values.flag),
        "finite_check": ("finite_check", values.flag),
        "restore_drills": ("restore_drills", values.flag),
    },
    "monitoring": {"alerts": ("alerts", values.some_of(words.Alert))},
}
_DELETES = {"keep_last", "one_per_s", "deletes_only_after_verified"}
"""Fields of a retention that deletes."""

_REQUIRED = (("run", "gpus"), ("run", "length"), ("schedule", "every"))


def read_plan(path: Path) -> CheckpointPlan:
    """The plan in this file. ConfigError names the file, and the section and key at fault."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML file: {error}") from None
    try:
        return as_plan(found)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def as_plan(found: Mapping[str, Any]) -> CheckpointPlan:
    """A plan from the tables of a TOML file."""
    _refuse_unknown(found, SECTIONS, "section")
    given = {name: _section(name, found.get(name, {})) for name in SECTIONS}
    for section, key in _REQUIRED:
        if SECTIONS[section][key][0] not in given[section]:
            raise ConfigError(f"{section}.{key}: is missing; nothing can be worked out without it")
    if not {"parameters", "planned_bytes"} & given["size"].keys():
        raise ConfigError("size: needs parameters (with precision and optimizer) or total")
    _refuse_contradictions(given)
    if _DELETES & given["retention"].keys():  # who says what stays has said that not all does
        given["retention"].setdefault("keep", words.Keep.SOME)
    return CheckpointPlan(
        run=words.Run(**given["run"]),
        size=words.Size(**given["size"]),
        schedule=words.Schedule(**given["schedule"]),
        storage=words.Storage(**given["storage"]),
        commit=words.Commit(**given["commit"]),
        data=words.Data(**given["data"]),
        restore=words.Restore(**given["restore"]),
        retention=words.Retention(**given["retention"]),
        validation=words.Validation(**given["validation"]),
        monitoring=words.Monitoring(**given["monitoring"]),
    )


def _section(name: str, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{name}: must be a section, [{name}]")
    known = SECTIONS[name]
    _refuse_unknown(table, known, f"key in [{name}]")
    return {known[key][0]: known[key][1](value, f"{name}.{key}") for key, value in table.items()}


def _refuse_unknown(found: Iterable[str], known: Mapping[str, Any], what: str) -> None:
    for name in found:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"is {close[0]} meant?" if close else f"known are {', '.join(known)}"
            raise ConfigError(f"unknown {what}: {name}; {hint}")


def _refuse_contradictions(given: Mapping[str, Mapping[str, Any]]) -> None:
    kept = given["retention"]
    if kept.get("keep") == words.Keep.ALL and _DELETES & kept.keys():
        raise ConfigError(
            'retention.keep: "all" leaves nothing for keep_last, one_per or delete_only_after_verified'
        )
    if given["run"].get("nodes", 1) > given["run"]["gpus"]:
        raise ConfigError("run.nodes: there are more nodes than run.gpus")
    if given["schedule"]["every_s"] > given["run"]["length_s"]:
        raise ConfigError("schedule.every: is longer than run.length: no checkpoint would ever be written")
