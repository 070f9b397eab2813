"""Shows the demo while it runs: live on a terminal, as a line now and then elsewhere. Draws what it is given."""

from collections import Counter
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rampmeter.core.units import format_bytes, format_rate
from rampmeter_coordinator.demo.acts import Stage
from rampmeter_coordinator.demo.board import Board, Doing, Row
from rampmeter_coordinator.demo.scenario import Scenario

_LINE_EVERY_S = 4.0
_BAR_WIDTH = 12
_SHORT = {
    Doing.STARTING: "starting",
    Doing.READY: "ready",
    Doing.TRAINING: "training",
    Doing.QUEUED: "waiting for a turn (training on)",
    Doing.WRITING: "writing (training on)",
    Doing.KILLED: "killed",
    Doing.DONE: "done",
}
_STYLES = {Doing.WRITING: "bold", Doing.QUEUED: "cyan", Doing.KILLED: "bold red", Doing.DONE: "green"}


def introduction(scenario: Scenario, url: str) -> Text:
    """What is real, what is emulated, where to look."""
    smallest = format_bytes(min(job.state_bytes for job in scenario.jobs))
    largest = format_bytes(max(job.state_bytes for job in scenario.jobs))
    capacity = format_rate(scenario.capacity_bytes_per_s)
    return Text.assemble(
        ("Rampmeter demo: what happens when many jobs checkpoint to one storage system\n\n", "bold"),
        ("real      ", "green"),
        f"{len(scenario.jobs)} PyTorch training processes ({smallest} to {largest} of state),\n"
        "          their checkpoints on disk, the coordinator, a SIGKILL, the restores\n",
        ("EMULATED  ", "bold yellow"),
        f"the shared storage: {capacity} in all, an equal part for each writer;\n"
        f"          the device: {scenario.step_s:g} s a step, {format_rate(scenario.copy_bytes_per_s)} to the host\n",
        ("look at   ", "cyan"),
        (url, "underline"),
        " (the coordinator, busy in act 2)\n",
    )


def headline(stage: Stage) -> str:
    """Which act, and what it is about."""
    if stage.metered:
        return "Act 2 of 2, metered: the same jobs ask for their turn; one will be killed"
    return "Act 1 of 2, the herd: all start together, each saves on its own interval"


def clock(stage: Stage, scenario: Scenario, now_s: float) -> str:
    """How far it is."""
    if not stage.begin_s:
        return "the jobs start"
    elapsed_s = min(max(0.0, now_s - stage.begin_s), scenario.act_s)
    return f"{elapsed_s:.0f} of {scenario.act_s:.0f} s"


class Screen(Protocol):
    """Use in a `with` block; `update` is called several times a second."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, stage: Stage, now_s: float) -> None:
        """Show what is known now."""
        ...

    def say(self, sentence: str) -> None:
        """Something to stay on screen."""
        ...


class LiveScreen:
    """A table that is drawn again in place."""

    def __init__(self, console: Console, scenario: Scenario) -> None:
        self._scenario = scenario
        self._follower = _Follower(scenario)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, stage: Stage, now_s: float) -> None:
        board = self._follower.follow(stage)
        time = clock(stage, self._scenario, now_s)
        head = Text.assemble((headline(stage), "bold"), f"\n{time}\n")
        storage = _storage(board, metered=stage.metered)
        self._live.update(Group(head, _table(board), storage), refresh=True)

    def say(self, sentence: str) -> None:
        self._live.update(Text(), refresh=True)
        self._live.console.print(sentence, highlight=False)


class LineScreen:
    """One line every few seconds: for logs and pipes."""

    def __init__(self, console: Console, scenario: Scenario) -> None:
        self._console = console
        self._scenario = scenario
        self._follower = _Follower(scenario)
        self._next_s = 0.0
        self._metered: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    def update(self, stage: Stage, now_s: float) -> None:
        board = self._follower.follow(stage)
        if stage.metered is not self._metered:
            self._metered = stage.metered
            self.say(headline(stage))
        if now_s < self._next_s:
            return
        self._next_s = now_s + _LINE_EVERY_S
        counts = Counter(_SHORT[row.doing] for row in board.rows.values())
        doing = ", ".join(f"{counts[word]} {word}" for word in _SHORT.values() if counts[word])
        self.say(f"  {clock(stage, self._scenario, now_s)}: {doing}")

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)


class _Follower:
    """Keeps the board of the act that is being played."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._stage: Stage | None = None
        self._board = Board.of(scenario)
        self._num_seen = 0

    def follow(self, stage: Stage) -> Board:
        if stage is not self._stage:
            self._stage, self._board, self._num_seen = stage, Board.of(self._scenario), 0
        self._board.take(stage.records[self._num_seen :])
        self._num_seen = len(stage.records)
        return self._board


def _table(board: Board) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title, justify, width in (
        ("job", "left", 7),
        ("step", "right", 5),
        ("loss", "right", 6),
        ("saved step", "right", 10),
        ("checkpoint", "left", _BAR_WIDTH),
        ("", "left", 30),
    ):
        table.add_column(title, justify=justify, width=width, no_wrap=True)  # type: ignore[arg-type]
    for row in board.rows.values():
        loss = "" if row.loss is None else f"{row.loss:.3f}"
        saved = "-" if row.committed_step is None else str(row.committed_step)
        bar: RenderableType = ""
        if row.doing is Doing.WRITING:
            bar = ProgressBar(total=1.0, completed=row.written, width=_BAR_WIDTH)
        table.add_row(
            row.name, str(row.step), loss, saved, bar, Text(_what(row), style=_STYLES.get(row.doing, "dim"))
        )
    return table


def _what(row: Row) -> str:
    if row.doing is Doing.WRITING:
        return f"{row.doing} ({row.written:.0%})"
    if row.resumed_step is not None and row.doing is Doing.TRAINING:
        return f"{row.doing} (resumed at step {row.resumed_step})"
    return str(row.doing)


def _storage(board: Board, *, metered: bool) -> Text:
    if board.coordinator_down:
        return Text("\nthe coordinator was killed (kill -9) and is starting again", style="bold red")
    writers = board.num_writers
    if metered:
        return Text(
            f"\n{writers} of {len(board.rows)} jobs write now, at the rate of their lease", style="bold green"
        )
    style = "bold red" if writers > 1 else "bold"
    return Text(f"\n{writers} of {len(board.rows)} jobs write now and share the storage", style=style)
