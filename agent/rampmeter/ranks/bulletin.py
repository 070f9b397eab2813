"""The log and the posts of all ranks, in a TCPStore of the agent's own that rank 0 holds.

The log has an order that no rank can read otherwise: an event is written where no other is, by compare and set. One
object, and one connection, serves one thread. Every call may block for as long as rank 0's process is stopped; once
it is gone they raise RanksLost. Decides nothing.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import TypeVar

from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]  # torch's own re-export

from rampmeter.core.decode import decode, encode
from rampmeter.core.errors import ProtocolError, RampmeterError
from rampmeter.ranks.words import Event, Post, Word

_CONNECT_LIMIT_S = 60.0
_WORD = "word"
_NEWS = "news"

T = TypeVar("T")


class RanksLost(RampmeterError):
    """The store that rank 0 holds cannot be reached: its process has ended."""


class Bulletin:
    """What one thread of one rank reads and writes."""

    def __init__(self, store: TCPStore, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._num_read = 0
        self._num_erased = 0
        self._seen: dict[int, tuple[bytes, Post]] = {}

    @property
    def num_read(self) -> int:
        """How much of the log was read."""
        return self._num_read

    def read_log(self) -> Iterator[Event]:
        """All events that are new, in order."""
        with _lost():
            while self._store.check([_entry(self._num_read)]):
                event = _understood(Event, self._store.get(_entry(self._num_read)))
                self._num_read += 1
                yield event

    def append(self, event: Event) -> None:
        """Write an event at the end of the log. It is read like all others, also by its writer."""
        body = encode(event)
        place = self._num_read
        with _lost():
            while self._store.compare_set(_entry(place), "", body.decode()) != body:
                place += 1

    def erase_before(self, num_events: int) -> None:
        """Forget events that everybody has read."""
        with _lost():
            while self._num_erased < num_events:
                self._store.delete_key(_entry(self._num_erased))
                self._num_erased += 1

    def post(self, beat: int, post: Post, *, is_news: bool) -> None:
        """Say the newest state of this rank; as news rank 0 looks at it at once."""
        with _lost():
            self._store.set(_place(self._rank), f"{beat} {encode(post).decode()}")
            if is_news:
                self._store.add(_NEWS, 1)

    def num_news(self) -> int:
        """How often a rank had news."""
        with _lost():
            return self._store.add(_NEWS, 0)

    def posts(self, num_ranks: int) -> dict[int, tuple[int, Post]]:
        """Beat and newest post of all ranks that have posted yet."""
        places = [_place(rank) for rank in range(num_ranks)]
        with _lost():
            found = self._store.multi_get(places)
        return {rank: self._read_post(rank, body) for rank, body in enumerate(found) if body}

    def prepare(self, num_ranks: int) -> None:
        """Rank 0, first of all: an empty place for each rank, since a look at a place that is not there would block."""
        with _lost():
            for rank in range(num_ranks):
                self._store.set(_place(rank), "")
            self.say(Word(beat=0))

    def say(self, word: Word) -> None:
        """Rank 0: say the newest state of the job."""
        with _lost():
            self._store.set(_WORD, encode(word).decode())

    def word(self) -> Word:
        """The newest word of rank 0."""
        with _lost():
            return _understood(Word, self._store.get(_WORD))

    def _read_post(self, rank: int, body: bytes) -> tuple[int, Post]:
        """Most posts differ from the one before in their beat only: those are not decoded again."""
        beat, _, rest = body.partition(b" ")
        seen = self._seen.get(rank)
        if seen is None or seen[0] != rest:
            seen = self._seen[rank] = (rest, _understood(Post, rest))
        return int(beat), seen[1]


def serve_store(host: str) -> TCPStore:
    """Rank 0's store, on a free port."""
    return _store(host, 0, is_master=True)


def join_store(host: str, port: int) -> TCPStore:
    """A connection to it."""
    return _store(host, port, is_master=False)


def _store(host: str, port: int, *, is_master: bool) -> TCPStore:
    limit = timedelta(seconds=_CONNECT_LIMIT_S)
    with _lost():
        return TCPStore(host, port, is_master=is_master, wait_for_workers=False, timeout=limit)


class _lost:  # noqa: N801 - reads as a statement
    """Turns what torch raises when the server is gone into RanksLost."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, DistError):
            first_line = str(error).partition("\n")[0]
            raise RanksLost(f"the store of rank 0 is gone: {first_line}") from error


def _understood(cls: type[T], body: bytes) -> T:
    try:
        return decode(cls, body)
    except ProtocolError as error:
        raise RanksLost(f"the ranks run different releases: {error}") from error


def _entry(number: int) -> str:
    return f"log/{number}"


def _place(rank: int) -> str:
    return f"post/{rank}"
