"""Fences over restarts: whatever was given out later is above all that came before, also where memory was lost."""

from rampmeter.core.fields import MAX_COUNT
from rampmeter.core.messages import Gone, Grant, Noted
from rampmeter_coordinator.model.commands import Refusal
from rampmeter_coordinator.model.state import MAX_SEEN_EPOCH, fence_epoch_of
from support.desk import Desk

T = 1000.0


def test_fences_grow_over_restarts() -> None:
    """The epoch is compared first: the counter may begin anew."""
    desk = Desk()
    first = desk.writer(1, T).fence
    desk.restart(epoch=2)
    assert desk.writer(2, T + 11).fence > first


def test_a_fence_is_above_all_that_the_agent_has_seen() -> None:
    """Also where that life is forgotten and the clock was set back since; those who come later are above it, too."""
    desk = Desk(epoch=9)
    job = desk.writer(1, T, max_bytes_per_s=95)
    old = job.fence
    desk.restart(forget=True, epoch=4, grace_until_s=T + 31)
    job.register(T + 1, seen_epoch=old.epoch)
    job.renew(T + 1, held=95)
    desk.tick(T + 6)
    assert isinstance(job.hear(), Grant)
    assert job.fence > old
    job.release(T + 31)
    assert desk.writer(2, T + 31).fence > job.fence


def test_an_epoch_of_this_life_is_nothing_to_outgrow() -> None:
    """Whoever registers again under the same coordinator tells its own epoch, or a lower one."""
    desk = Desk(epoch=9)
    job = desk.writer(1, T)
    for seen_epoch in (0, 8, 9):
        job.register(T + 1, seen_epoch=seen_epoch)
        assert fence_epoch_of(desk.meta) == 9


def test_an_epoch_that_cannot_be_is_not_believed() -> None:
    """One job must not use up the numbers that all the restarts to come need; who is refused says nothing at all."""
    desk = Desk(epoch=9)
    job = desk.known(1, T)
    for seen_epoch in (MAX_COUNT, MAX_SEEN_EPOCH):
        assert isinstance(job.register(T, seen_epoch=seen_epoch), Noted)
    assert isinstance(job.register(T, seen_epoch=12, claim="f" * 32), Refusal)
    assert fence_epoch_of(desk.meta) == 9
    job.register(T, seen_epoch=MAX_SEEN_EPOCH - 1)
    assert fence_epoch_of(desk.meta) == MAX_SEEN_EPOCH


def test_lost_memory_re_creates_a_holder_under_a_new_fence() -> None:
    """In grace a renewal with a rate in it brings the lease back; after grace it does not."""
    desk = Desk()
    job = desk.writer(1, T, max_bytes_per_s=95)
    old = job.fence
    desk.restart(forget=True, epoch=2, grace_until_s=T + 31)
    job.register(T + 1)
    job.renew(T + 1, held=95)
    desk.tick(T + 6)
    assert isinstance(job.hear(), Grant)
    assert job.fence > old
    late = Desk(grace_until_s=0.0).known(2, T)
    late.renew(T, held=95)
    assert isinstance(late.last, Gone)
