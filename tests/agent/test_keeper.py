"""The keeper's conversation, with a real HTTP server that answers as a test says."""

import threading
from pathlib import Path
from typing import Any

import rampmeter
from rampmeter.core.messages import Answer, GoneReason, WaitReason
from support.answers import gone, grant, noted, plan, wait
from support.training import Run
from support.waiting import wait_for


def test_an_urgent_request_that_nobody_answered_is_said_anew(serve: Any, tmp_path: Path) -> None:
    """Its deadline has come nearer, so it has a number of its own; then it is obeyed: nothing is written."""

    def answers(path: str, body: dict[str, Any]) -> Answer | None:
        if path != "slots":
            return noted(body["seq"], plan=plan())
        if len(server.slots()) == 1:
            return None
        return wait(body["seq"], fits_bytes=5, reason=WaitReason.WILL_NOT_FIT)

    server = serve(answers)
    run = Run()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with rampmeter.Checkpointer(tmp_path, coordinator=url, interval_min_s=1000.0, notice_s=60.0) as ckpt:
        ckpt.step(1, run.state)
        wait_for(lambda: any(path == "jobs/register" for path, _ in server.said), what="the registration")
        ckpt._on_notice("SIGTERM")
        wait_for(lambda: ckpt.should_stop, what="the word to stop")
        assert ckpt.last_save is None
    first, second = server.slots()
    assert (first["urgent"], second["urgent"]) == (True, True)
    assert second["seq"] > first["seq"]
    assert 0 < second["deadline_s"] < first["deadline_s"] <= 60.0


def test_a_save_that_makes_room_is_aborted_cleaned_up_and_asked_for_again(serve: Any, tmp_path: Path) -> None:
    """From the renewal that is told so to the next request: no file stays, the release says aborted."""

    def answers(path: str, body: dict[str, Any]) -> Answer | None:
        paths = [said for said, _ in server.said]
        if path == "slots":
            return wait(body["seq"], retry_after_s=60.0) if paths.count("slots") > 1 else grant(body["seq"])
        if path == "leases/ready":
            return grant(body["seq"], rate=1_000_000)
        if path != "leases/renew":
            return noted(body["seq"], plan=plan(interval_s=0.5))
        if body["done_bytes"] > 0:
            return gone(body["seq"], GoneReason.MAKE_ROOM)
        held.wait(0.02)  # as a renewal is held, only shorter
        return grant(body["seq"], rate=body["held_bytes_per_s"])

    held = threading.Event()
    server, run, step = serve(answers), Run(hidden=8000), 0
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with rampmeter.Checkpointer(tmp_path, coordinator=url) as ckpt:
        while len(server.slots()) < 2:
            run.train_one()
            step += 1
            ckpt.step(step, run.state)
            assert step < 100_000
        assert ckpt.last_save is not None
        assert (ckpt.last_save.reason, ckpt.should_stop) == ("make_room", False)
    releases = [body for path, body in server.said if path == "leases/release"]
    assert [release["outcome"] for release in releases] == ["aborted"]
    assert 0 < releases[0]["done_bytes"] < 3_000_000
    assert [asked["started"] for asked in server.slots()] == [False, False]
    assert not list(tmp_path.glob("step-*"))


def test_an_ordinary_request_that_nobody_answered_is_sent_again_unchanged(serve: Any, tmp_path: Path) -> None:
    """So that it is handled once."""

    def answers(path: str, body: dict[str, Any]) -> Answer | None:
        if path != "slots":
            return noted(body["seq"], plan=plan(interval_s=0.5))
        return None if len(server.slots()) == 1 else wait(body["seq"], retry_after_s=60.0)

    server = serve(answers)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with rampmeter.Checkpointer(tmp_path, coordinator=url):
        wait_for(lambda: len(server.slots()) >= 2, what="the second try")
    first, second = server.slots()[:2]
    assert first == second


def test_who_holds_a_lease_does_not_back_off_for_long(serve: Any, tmp_path: Path) -> None:
    """Others wait for what it holds: it tries eight times in the time in which others try four times."""

    def answers(path: str, body: dict[str, Any]) -> Answer | None:
        if path == "slots":
            return grant(body["seq"])
        if path in ("leases/ready", "leases/renew"):
            return grant(body["seq"], rate=10**9)
        return None if path == "leases/release" else noted(body["seq"], plan=plan(interval_s=0.5))

    def num_releases() -> int:
        return sum(path == "leases/release" for path, _ in server.said)

    server, run, step = serve(answers), Run(), 0
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with rampmeter.Checkpointer(tmp_path, coordinator=url) as ckpt:
        while not num_releases():
            run.train_one()
            step += 1
            ckpt.step(step, run.state)
            assert step < 100_000
        wait_for(lambda: num_releases() >= 8, what="the eighth try", limit_s=10.0)


def test_a_size_that_is_known_while_the_registration_is_on_its_way_is_told_by_another(
    serve: Any, tmp_path: Path
) -> None:
    """The first was worded without it."""

    def answers(path: str, body: dict[str, Any]) -> Answer | None:
        if path == "jobs/register":
            known.wait(10.0)
        return noted(body["seq"], plan=plan(heartbeat_s=0.2))

    def sizes() -> list[Any]:
        return [body.get("num_bytes") for path, body in list(server.said) if path == "jobs/register"]

    known = threading.Event()
    server, run = serve(answers), Run()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with rampmeter.Checkpointer(tmp_path, coordinator=url) as ckpt:
        wait_for(lambda: server.said, what="the registration")
        ckpt.restore(run.state)
        known.set()
        wait_for(lambda: len(sizes()) >= 2, what="the second registration")
        wait_for(lambda: server.said[-1][0] != "jobs/register", what="the heartbeat after it")
    assert sizes()[0] is None
    assert sizes()[1] > 0
    assert len(sizes()) == 2
