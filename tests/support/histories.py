"""Hand-made histories of the demo: small enough to compute every figure in the head."""

from rampmeter_coordinator.demo.history import Allowed, Chunk, Committed, Loss, Saving


def save(job, begin_s, end_s, *, num_bytes=100, step=1, life=1, snapshot_s=None, durable=True):
    """The records of one save: snapshot, two chunks of equal length, durable at `end_s`."""
    snapshot_s = begin_s if snapshot_s is None else snapshot_s
    middle_s = (begin_s + end_s) / 2
    half = num_bytes // 2
    records = [
        Saving(at_s=snapshot_s, job=job, life=life, step=step),
        Chunk(at_s=middle_s, job=job, life=life, begin_s=begin_s, num_bytes=half),
        Chunk(at_s=end_s, job=job, life=life, begin_s=middle_s, num_bytes=num_bytes - half),
    ]
    if durable:
        records.append(Committed(at_s=end_s, job=job, life=life, step=step, write_s=end_s - snapshot_s))
    return records


def allowed(job, at_s, bytes_per_s, until_s=None, life=1):
    return Allowed(at_s=at_s, job=job, life=life, bytes_per_s=bytes_per_s, until_s=until_s)


def losses(job, first_step, values, *, life=1, begin_s=0.0):
    """One loss a second."""
    return [
        Loss(at_s=begin_s + index, job=job, life=life, step=first_step + index, loss=float(value).hex())
        for index, value in enumerate(values)
    ]
