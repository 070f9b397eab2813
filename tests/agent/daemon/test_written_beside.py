"""What a real writer process writes, and that it costs no more from save to save."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from rampmeter.daemon.guardian import Guardian
from rampmeter.manifest import read_manifest
from rampmeter.restore import restore
from support.hired import LIMIT_S, MIB, Desk
from support.processes import rss_bytes
from support.waiting import wait_for


class OnlyHere:
    """A class of training that the writer never imports."""

    def __init__(self, value: int) -> None:
        self.value = value


OnlyHere.__module__ = "__main__"
OnlyHere.__qualname__ = "OnlyHere"


def test_what_is_restored_is_what_was_saved(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit: parameters, moments, views, plain values, values of classes that the writer does not have."""
    monkeypatch.setattr("__main__.OnlyHere", OnlyHere, raising=False)
    model = nn.Sequential(*(nn.Linear(7, 7) for _ in range(150)))
    optim = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 7)).square().mean().backward()
    optim.step()
    table = torch.randn(64, 64)
    state = {
        "model": model,
        "optim": optim,
        "table": table,
        "rows": table[::2],
        "numbers": [1, 2],
        "mine": OnlyHere(5),
    }
    expected = {key: value.clone() for key, value in model.state_dict().items()}
    moments = [t.clone() for slots in optim.state.values() for t in slots.values()]
    kept = table.clone()
    name = desk.begin(7, state).result(LIMIT_S)
    with torch.no_grad():
        for tensor in [*model.parameters(), table, *(t for s in optim.state.values() for t in s.values())]:
            tensor.zero_()
    state["mine"], state["numbers"] = None, None
    restored = restore(desk.root, state)
    assert restored is not None
    assert restored.step == 7
    torch.testing.assert_close(dict(model.state_dict()), expected, rtol=0, atol=0)
    assert all(
        torch.equal(a, b)
        for a, b in zip(moments, (t for s in optim.state.values() for t in s.values()), strict=True)
    )
    assert torch.equal(state["table"], kept)
    assert torch.equal(state["rows"], kept[::2])
    assert (state["numbers"], state["mine"].value) == ([1, 2], 5)  # type: ignore[attr-defined]
    manifest = read_manifest(desk.root.directory(name))
    assert 0 < manifest.timings.stage_s < manifest.timings.lead_s < manifest.timings.write_s
    assert desk.root.read_latest() == name
    assert desk.first_bytes == [
        sum(t.nbytes for t in expected.values()) + sum(t.nbytes for t in moments) + kept.nbytes * 3 // 2
    ]


def test_a_state_that_grows_is_written_whole(desk: Desk) -> None:
    """The writer is handed the larger memory, and lets go of the other."""
    desk.begin(1, {"t": torch.ones(10)}).result(LIMIT_S)
    large = torch.arange(100_000)
    desk.begin(2, {"t": large}).result(LIMIT_S)
    state = {"t": torch.zeros_like(large)}
    restore(desk.root, state)
    assert torch.equal(state["t"], large)


def test_nothing_grows_from_save_to_save(desk: Desk, guardian: Guardian) -> None:
    """Thirty saves cost no state more than the first ten, and no thread or descriptor more, on either side."""
    state = {f"t{i}": torch.ones(MIB // 8) for i in range(16)}
    for step in range(30):
        desk.begin(step, state).result(LIMIT_S)
        if step == 10:
            early_bytes, early_held = _memory_of(guardian), _held_by(guardian)
    for before_bytes, after_bytes in zip(early_bytes, _memory_of(guardian), strict=True):
        assert after_bytes <= before_bytes + 8 * MIB
    wait_for(  # a thread that has ended stands in /proc for a moment
        lambda: all(now <= early for now, early in zip(_held_by(guardian), early_held, strict=True)),
        what="the last threads to be gone",
        limit_s=5.0,
    )


def _memory_of(guardian: Guardian) -> list[int]:
    assert guardian.pid is not None
    return [rss_bytes(os.getpid()), rss_bytes(guardian.pid)]


def _held_by(guardian: Guardian) -> list[int]:
    """Descriptors and threads of both processes."""
    held = [f"/proc/{pid}/{what}" for pid in ("self", guardian.pid) for what in ("fd", "task")]
    return [len(list(Path(path).iterdir())) for path in held]


def test_views_that_are_only_marked_are_written_as_their_values(desk: Desk) -> None:
    """Conjugated and negated ones, also one of another's memory: the writer sees memory, in which no mark is."""
    values = torch.tensor([1 + 2j, 3 - 4j])
    negated = torch._neg_view(torch.tensor([1.0, 2.0]))  # type: ignore[no-untyped-call]
    state = {"plain": values, "conj": values.conj(), "imag": values.conj().imag, "neg": negated}
    desk.begin(1, state).result(LIMIT_S)
    into = {key: torch.zeros_like(value).resolve_conj().resolve_neg() for key, value in state.items()}
    restore(desk.root, into)
    assert {key: value.tolist() for key, value in into.items()} == {
        "plain": [1 + 2j, 3 - 4j],
        "conj": [1 - 2j, 3 + 4j],
        "imag": [-2.0, 4.0],
        "neg": [-1.0, -2.0],
    }
