"""What a checkpoint lacks is named once: of the state as a warning, of its provenance for the record."""

import logging
from typing import Any

import pytest
import torch
from torch import nn

from rampmeter.completeness import missing
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest

MODEL = nn.Linear(2, 2)


class Sampler:
    """A data position."""

    def state_dict(self) -> dict[str, int]:
        return {"position": 3}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


def optimizer(*, scheduled: bool) -> torch.optim.Optimizer:
    """One that a scheduler drives, or not."""
    found = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    if scheduled:
        torch.optim.lr_scheduler.StepLR(found, 10)
    return found


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"model": MODEL}, ["optimizer", "position in the data"]),
        ({"model": MODEL, "optimizer": optimizer(scheduled=False)}, ["position in the data"]),
        ({"model": MODEL, "optimizer": optimizer(scheduled=False), "loader": Sampler()}, []),
        ({"model": MODEL, "optimizer": optimizer(scheduled=False), "data_position": 7}, []),
        (
            {"model": MODEL, "optimizer": optimizer(scheduled=True), "sampler": Sampler()},
            ["learning-rate scheduler"],
        ),
        ({"table": torch.ones(3)}, []),
    ],
)
def test_what_is_seen_to_lack_is_named(state: dict[str, Any], words: list[str]) -> None:
    """And nothing else: a table of tensors is somebody's own business."""
    found = missing(state)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


def test_it_is_said_once(make_saver: Any, save: Any, caplog: pytest.LogCaptureFixture) -> None:
    """At the warm-up, not again at each save."""
    saver, state = make_saver(), {"model": MODEL}
    with caplog.at_level(logging.INFO, logger="rampmeter"):
        saver.warm_up(state)
        save(saver, 1, state)
        save(saver, 2, state)
    said = [record for record in caplog.records if "checkpoints" in record.message]
    assert [record.levelno for record in said] == [logging.WARNING, logging.INFO]
    assert "checkpoints lack the optimizer, the position in the data" in said[0].message
    assert "RAMPMETER_CODE_COMMIT" in said[1].message


def test_provenance_comes_from_the_call_and_from_the_environment(
    root: Root, make_saver: Any, save: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The call wins; what is said is in the manifest, and nobody complains."""
    monkeypatch.setenv("RAMPMETER_CODE_COMMIT", "of the environment")
    monkeypatch.setenv("RAMPMETER_CONTAINER_DIGEST", "sha256:1")
    saver = make_saver(config={"lr": 1})
    with caplog.at_level(logging.INFO, logger="rampmeter"):
        first = save(saver, 1, {"table": torch.ones(3)})
    assert "do not say" not in caplog.text
    second = save(make_saver(config={"lr": 1}, code_commit="abc"), 2, {"table": torch.ones(3)})
    manifests = [read_manifest(root.path / report.directory) for report in (first, second)]
    assert [manifest.code_commit for manifest in manifests] == ["of the environment", "abc"]
    assert {manifest.container_digest for manifest in manifests} == {"sha256:1"}
