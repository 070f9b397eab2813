"""What every request of an attempt carries, numbered: one counter for all of them. Sends nothing."""

from typing import TypedDict


class Envelope(TypedDict):
    """Fields of every request."""

    job_uid: str
    attempt: int
    seq: int
    ack: int
