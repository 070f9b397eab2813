"""What a save will write, looked at before any byte is: values that are not finite, and whose copy counts."""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    StorageMeta,
)
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from rampmeter.core.errors import ConfigError
from rampmeter.dcp.standins import Sealed
from rampmeter.finite import check_finite
from rampmeter.freezing import pickled
from rampmeter.manifest import KeyNorm
from rampmeter.norms import joined
from rampmeter.savable import blaming
from rampmeter.statekeys import FROZEN, LEAD, OWN, RESERVED
from rampmeter.tensornorm import norm_of


@dataclass(frozen=True)
class LeadItem(WriteItem):
    """An item of which, when several ranks have it, the copy of the lowest rank is written."""


class CheckedSavePlanner(DefaultSavePlanner):
    """Looks at the staged values while planning: a NaN is found before any byte is written.

    Every rank checks all that it holds, its own shards of DTensors, whether or not it will be the one that writes it.
    Of what is no tensor, and of the tensors that the state dict names under `LEAD`, the copy of the lowest rank counts;
    torch would take that of any rank. `with_norms`: what this rank will write, and nothing else, has its `norms` by key
    once the plan is finished.
    """

    def __init__(self, *, check: bool = True, with_norms: bool = False) -> None:
        super().__init__()
        self._check = check
        self._with_norms = with_norms
        self._lead: frozenset[tuple[Any, ...]] = frozenset()
        self.unchecked: list[str] = []
        self.norms: tuple[KeyNorm, ...] = ()

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        own = dict(state_dict.get(RESERVED, {}))
        self._lead = frozenset(own.pop(LEAD, ()))
        if own:
            state_dict = {**state_dict, RESERVED: own}
        try:
            super().set_up_planner(state_dict, storage_meta, is_coordinator)
        except ValueError as error:  # the only thing that torch says: "duplicated flatten key a.b"
            raise ConfigError(
                f"two values of the state come out under one name ({error}): rename one"
            ) from error

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        plan = replace(plan, items=[self._marked(item) for item in plan.items])
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                continue
            tensor = cast(torch.Tensor, self.resolve_data(item)).detach()
            if not self._check or not check_finite(item.index.fqn, tensor):
                self.unchecked.append(item.index.fqn)
        return plan

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:  # noqa: A002 - as it is called by torch
        if isinstance(object, Sealed):
            return io.BytesIO(object.content)
        with blaming(object, pickled, cannot_be="pickled", at=write_item.index.fqn):
            return super().transform_object(write_item, object)

    def _marked(self, item: WriteItem) -> WriteItem:
        path = cast("dict[str, tuple[Any, ...]]", self.mappings).get(item.index.fqn)
        if item.type != WriteItemType.BYTE_IO and path not in self._lead:
            return item
        return LeadItem(**vars(item))

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Runs on the coordinator rank, with the plans of all ranks. ConfigError if no restore could take them back."""
        _require_alike(all_plans)
        planned: set[MetadataIndex] = set()
        kept = []
        for plan in all_plans:
            items = [item for item in plan.items if item.index not in planned]
            kept.append(replace(plan, items=items))
            planned |= {item.index for item in items if isinstance(item, LeadItem)}
        return super().create_global_plan(kept)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """What another rank writes, another rank names as unchecked."""
        plan = super().finish_plan(new_plan)
        written = {item.index.fqn for item in plan.items}
        self.unchecked = [name for name in self.unchecked if name in written]
        if self._with_norms:
            self.norms = joined(self._norms(plan))
        return plan

    def _norms(self, plan: SavePlan) -> Iterator[KeyNorm]:
        paths = cast("dict[str, tuple[Any, ...]]", plan.planner_data)
        for item in plan.items:
            if item.tensor_data is None or math.prod(item.tensor_data.size) == 1:
                continue  # an optimizer's count of steps grows for ever, and would outgrow its moments
            norm = norm_of(cast(torch.Tensor, self.resolve_data(item)).detach())
            if norm is not None:
                yield KeyNorm(key=str(paths[item.index.fqn][0]), norm=norm)


def _require_alike(plans: list[SavePlan]) -> None:
    """Each rank's state has the keys of rank 0's: at a restore all ranks are asked for the same."""
    first = _keys(plans[0])
    for rank, plan in enumerate(plans):
        surplus = sorted(_keys(plan) - first)
        if surplus:
            raise ConfigError(
                f"the state of rank {rank} has {', '.join(surplus[:3])}, which that of rank 0 has not: "
                "give all ranks the same keys; what stands under one may differ, for example in a dict"
            )


def _keys(plan: SavePlan) -> set[str]:
    paths = cast("dict[str, tuple[Any, ...]]", plan.planner_data or {})
    found = set()
    for path in paths.values():
        if path[0] != RESERVED:
            found.add(str(path[0]))
        elif path[1] == FROZEN and len(path) > 2:
            found.add(str(path[2]))
        elif path[1] == OWN and len(path) > 3:
            found.add(str(path[3]))
    return found


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether all of its values are here: no DTensor, nor another kind that may be spread over ranks."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def without_view_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Itself; of a view that torch only marks as conjugated or negated, its values: no writer would see the mark."""
    local = local_part(tensor)
    if not (local.is_conj() or local.is_neg()):
        return tensor
    local = local.detach().resolve_conj().resolve_neg()
    if not isinstance(tensor, DTensor):
        return local
    return DTensor.from_local(
        local, tensor.device_mesh, tensor.placements, shape=tensor.shape, stride=tensor.stride()
    )
