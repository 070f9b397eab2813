"""The log can be replayed: the same code gives every reply again, and what comes out otherwise is shown."""

import asyncio
import json
import random
import subprocess

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter.core.messages import Kind, Noted
from rampmeter_coordinator.codec import MAX_LOGGED_BYTES, decode
from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.errors import Refused
from rampmeter_coordinator.model import planning
from rampmeter_coordinator.model.encoding import encode
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.replay import replay
from rampmeter_coordinator.store.memory import MemoryStore
from rampmeter_coordinator.store.sqlite import read_only_segment
from support.coordinator import coordinator
from support.http_job import HttpJob
from support.jobs import Job
from support.redis_server import redis_server
from support.servers import PROGRAMS, without_settings
from support.waiting import some_turns

POOL = PoolConfig(name="lustre", capacity_bytes_per_s=3 * 10**9)
LOG_ROWS = 100_000
PAUSES_S = (0.0, 0.0, 0.1, 0.1, 0.2, 0.2, 0.5, 0.5, 1.0, 1.0, 2.0, 5.0, 40.0)


class Conversation:
    """Jobs that say anything at any time: saves, restores, repetitions, what is refused; some just go away."""

    def __init__(self, engine, clock, draw):
        self.engine, self.clock, self.draw = engine, clock, draw
        self.jobs = [Job() for _ in range(6)]
        self.held = []
        self.unknown = set()

    async def go_on(self, num_turns):
        runner = self.engine._runner("lustre")
        for _ in range(num_turns):
            self.clock.advance(self.draw.choice(PAUSES_S))
            runner._wake.set()  # the loop's timers do not know of a clock that is moved
            await some_turns(6)
            job = self.draw.choice(self.jobs)
            try:
                self.held.append((job, self.engine.submit("lustre", self.request(job))))
            except Refused:
                continue
            await some_turns(6)
            self.listen()
            if self.held and self.draw.random() < 0.3:
                self.draw.choice(self.held)[1].cancel()

    def request(self, job):
        draw = self.draw
        if draw.random() < 0.03:
            job.attempt, job.seq, job.acked, job.fence = job.attempt + 1, 0, 0, None
        if job.seq == 0 or draw.random() < 0.05 or job.uid in self.unknown:
            self.unknown.discard(job.uid)
            return job.register()
        if draw.random() < 0.1 and job.seq > 2:
            job.seq -= draw.choice((1, 1, 2))  # again, or out of order
        if draw.random() < 0.03:
            return job.finish()
        if job.fence is None or draw.random() < 0.3:
            return draw.choice((job.heartbeat, job.slot, job.slot, self.slow_slot(job)))()
        return draw.choice(
            (job.ready, job.release, lambda: job.renew(held=10**8, done=draw.randrange(10**9)))
        )()

    def slow_slot(self, job):
        draw = self.draw
        return lambda: job.slot(
            kind=draw.choice(list(Kind)),
            ready_in_s=draw.choice((1.0, 30.0)),
            num_bytes=draw.choice((None, 10**11)),
        )

    def listen(self):
        waiting = []
        for job, answer in self.held:
            if not answer.done():
                waiting.append((job, answer))
            elif answer.cancelled():
                continue
            elif answer.exception() is not None:
                self.unknown.add(job.uid)
                job.fence = None
            else:
                job.acked = max(job.acked, answer.result().seq)
                job.fence = getattr(answer.result(), "fence", job.fence)
        self.held = waiting


def conversation(seed, *, lives=2, num_turns=300):
    """The store after coordinators that were started, talked to and ended."""

    async def scenario():
        store, clock, draw = MemoryStore(log_rows=LOG_ROWS), ManualClock(), random.Random(seed)
        talk = None
        for _ in range(lives):
            engine = await Engine.open((POOL,), store, clock, boot_id="boot", fresh=True)
            talk = talk or Conversation(engine, clock, draw)
            talk.engine, talk.held = engine, []
            await talk.go_on(num_turns)
            await engine.close()
        return store, await store.segment("lustre")

    return asyncio.run(scenario())


def test_a_replay_gives_the_same_replies():
    """Whatever was said, held, repeated, withdrawn and refused, in a first life or in one that goes on from another."""
    names = set()
    for seed in range(6):
        _, segment = conversation(seed, lives=1 + seed % 2)
        result = replay(segment)
        assert result.difference is None, seed
        assert result.num_decisions == len(segment.rows) > 250
        names |= {next(iter(json.loads(row.command))) for row in segment.rows}
    assert {"Tick", "Disconnected", "Register", "SlotRequest", "Ready", "Renew", "Release", "Finish"} <= names


def test_a_request_is_logged_as_it_came():
    """With what this release does not know of it; one that is puffed up is logged without. Both are read as decided."""
    puffed = " " * MAX_LOGGED_BYTES

    async def scenario():
        store, job = MemoryStore(), Job()
        engine = await Engine.open((POOL,), store, ManualClock(), boot_id="boot", fresh=True)
        for request, more in (
            (job.register(), ""),
            (job.heartbeat(step=7), '"new": 1, '),
            (job.heartbeat(), puffed),
        ):
            body = b"{" + more.encode() + encode(request)[1:]
            await engine.submit("lustre", decode(type(request), body), body)
        await engine.close()
        return await store.segment("lustre")

    segment = asyncio.run(scenario())
    assert replay(segment).difference is None
    known, newer, short = (row.command for row in segment.rows)
    assert known.startswith(b'{"Register":{"job_uid":')
    assert newer.startswith(b'{"Heartbeat":{"new": 1, "job_uid":')
    assert json.loads(newer)["Heartbeat"]["step"] == 7
    assert short.startswith(b'{"Heartbeat":{"job_uid":')


def test_an_older_segment_is_not_mixed_in():
    """A replay starts where the newest coordinator started, with what that one found."""
    store, segment = conversation(1)
    assert len(store.log("lustre")) > len(segment.rows)
    assert segment.records
    assert replay(segment).epoch == segment.epoch


def test_a_changed_rule_is_found_at_its_first_reply(monkeypatch):
    """Row, command, kept and new reply are told, of the first decision that comes out otherwise."""
    _, segment = conversation(2, lives=1)
    monkeypatch.setattr(planning, "HEARTBEAT_S", 14.0)
    difference = replay(segment).difference
    first = next(number for number, row in enumerate(segment.rows, 1) if b'"heartbeat_s"' in row.replies)
    assert difference.row == first
    assert difference.command == segment.rows[first - 1].command.decode()
    assert '"heartbeat_s":15.0' in difference.kept
    assert difference.new == difference.kept.replace('"heartbeat_s":15.0', '"heartbeat_s":14.0')


def test_time_that_changed_no_record_is_in_the_log_too():
    """A tick that is not worth a commit, here the end of grace, comes with the next one, at its own time."""

    async def scenario():
        store, clock, job = MemoryStore(), ManualClock(), Job()
        engine = await Engine.open((POOL,), store, clock, boot_id="boot")
        clock.advance(POOL.grace_s + 1.0)
        ticked_s = clock.now()
        engine._runner("lustre")._wake.set()
        await some_turns()
        assert store.log("lustre") == []
        clock.advance(1.0)
        await job.tell(engine, job.register())
        await engine.close()
        return ticked_s, store.log("lustre")

    ticked_s, rows = asyncio.run(scenario())
    assert (ticked_s, b'{"Tick":{}}') in [(row.now_s, row.command) for row in rows]
    assert rows[-1].command.startswith(b'{"Register"')


def test_an_internal_error_is_part_of_the_log(monkeypatch):
    """A command that made the ledger fail had no reply; when it fails again, nothing is different."""

    async def scenario():
        store, clock = MemoryStore(), ManualClock()
        engine = await Engine.open((POOL,), store, clock, boot_id="boot", fresh=True)
        job = Job()
        assert isinstance(await job.tell(engine, job.register()), Noted)
        with pytest.raises(Refused, match="internal"):
            await job.tell(engine, job.heartbeat(step=666))
        await engine.close()
        return await store.segment("lustre")

    real = Ledger.apply

    def failing(self, command, now_s):
        if getattr(command, "step", None) == 666:
            raise RuntimeError("a bug")
        return real(self, command, now_s)

    monkeypatch.setattr(Ledger, "apply", failing)
    segment = asyncio.run(scenario())
    assert replay(segment).difference is None
    monkeypatch.setattr(Ledger, "apply", real)
    assert replay(segment).difference.kept == "[]"


# -- the command -----------------------------------------------------------------------------------------------


def rampmeter_replay(*options):
    """Run the command; gives the finished process."""
    return subprocess.run(
        [PROGRAMS / "rampmeter", "replay", *options],
        capture_output=True,
        text=True,
        env=without_settings(),
        timeout=60,
        check=False,
    )


def some_saves(served, count=3):
    """Jobs that save over HTTP."""
    with served.client() as client:
        for _ in range(count):
            job = HttpJob()
            job.enter(client)
            for say in (job.slot, job.renew, job.ready, job.release):
                assert job.send(client, say()).status_code == 200


@pytest.mark.system
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("redis", marks=pytest.mark.debian("redis-server"))])
def test_the_log_of_a_running_coordinator_can_be_replayed(tmp_path, kind):
    """From its SQLite file, which it goes on to use, or from its Redis server."""

    def tried(served, *where):
        some_saves(served)
        result = rampmeter_replay(*where, "--json")
        assert result.returncode == 0, result.stderr
        found = json.loads(result.stdout)
        assert (found["same"], found["difference"], found["pool"]) == (True, None, "default")
        assert found["num_decisions"] >= 18
        some_saves(served)
        result = rampmeter_replay(*where)
        assert "every reply is the same" in result.stdout

    if kind == "sqlite":
        with coordinator(tmp_path, "--fresh") as served:
            tried(served, "--data-dir", str(served.data_dir))
            with served.client() as client:
                body = b'{"said": "by somebody newer", ' + encode(HttpJob().register())[1:]
                assert client.post("/v1/pools/default/jobs/register", content=body).status_code == 200
            assert body in read_only_segment(served.data_dir, "default").rows[-1].command
    else:
        with redis_server(tmp_path) as url, coordinator(tmp_path, "--fresh", "--store", url) as served:
            tried(served, "--store", url)


@pytest.mark.system
def test_what_cannot_be_replayed_is_said(tmp_path):
    """Exit code 2 and the reason: no store, another pool, a memory store, a log that does not reach back."""
    config = tmp_path / "config.toml"
    config.write_text("[server]\nlog_rows = 100\n")
    with coordinator(tmp_path, "--fresh", "--config", str(config)) as served:
        where = ("--data-dir", str(served.data_dir))
        for options, reason in (
            (("--data-dir", str(tmp_path)), "has no store"),
            ((*where, "--pool", "other"), "pool other: the store has no log"),
            (("--store", "memory"), "ends with its coordinator"),
            (("--store", "redis://127.0.0.1:1/0"), "cannot be read"),
        ):
            result = rampmeter_replay(*options)
            assert (result.returncode, result.stdout) == (2, "")
            assert reason in result.stderr
        some_saves(served, 20)
        result = rampmeter_replay(*where)
        assert result.returncode == 2
        assert "does not reach back" in result.stderr
        assert "20 decisions since then are gone, 100 are kept" in result.stderr
