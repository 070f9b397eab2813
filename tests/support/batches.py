"""Batches for store tests."""

from rampmeter_coordinator.model.commands import Changes
from rampmeter_coordinator.store.protocol import Batch, Candidate, Head, LogRow


def batch(number, *, epoch=5, writer="one", pool="lustre", records=None, meta=b"{}", log=(), opening=None):
    """Commit `number` of a pool."""
    head = Head(
        number=number,
        epoch=epoch,
        writer=writer,
        boot_id="boot",
        now_s=10.5 + number,
        grace_s=31.0,
        grace_until_s=0.0,
    )
    return Batch(
        pool=pool,
        head=head,
        changes=Changes(records=records or {}, meta=meta),
        log=tuple(log),
        opening=opening,
    )


def row(number):
    """A log row that can be told from others."""
    return LogRow(now_s=float(number), command=b'{"Tick":{}}', replies=b'[{"seq":%d}]' % number)


def candidate(holder, now_s=10.5, boot_id="boot"):
    """A process that would lead."""
    return Candidate(holder=holder * 32, url=f"http://{holder}:8000", boot_id=boot_id, now_s=now_s)
