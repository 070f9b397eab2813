"""The only package that touches torch.distributed.checkpoint, for all others.

It decides nothing about leases, commits or restore order, and runs no collective itself.
"""

import warnings

from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from rampmeter.dcp.flushing import ReusedStager, cause_of, ends_group, save_here, start_save
from rampmeter.dcp.loading import PlannedLoad, VerifiedReader
from rampmeter.dcp.planning import CheckedSavePlanner, is_plain, local_part, without_view_bits
from rampmeter.dcp.standins import Place, Places, Sealed, ShardPart
from rampmeter.dcp.writing import MeteredWriter, metered, metered_writer

__all__ = [
    "BytesStorageMetadata",
    "CheckedSavePlanner",
    "DTensor",
    "Metadata",
    "MeteredWriter",
    "Place",
    "Places",
    "PlannedLoad",
    "ReusedStager",
    "Sealed",
    "ShardPart",
    "StateDictOptions",
    "Stateful",
    "TensorStorageMetadata",
    "VerifiedReader",
    "cause_of",
    "ends_group",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "is_plain",
    "local_part",
    "metered",
    "metered_writer",
    "save_here",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "start_save",
    "without_view_bits",
]

# A single process saves without a process group on purpose, at every interval.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable")
