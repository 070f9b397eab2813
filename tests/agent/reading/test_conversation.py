"""A restore's conversation, with a real HTTP server that answers as a test says."""

import threading

import pytest
import torch

import rampmeter
from rampmeter import keeper
from rampmeter.events import RestoreRateChanged
from support.answers import gone, grant, noted, plan, wait
from support.restoring import MB, save, seed_for, state_of
from support.waiting import wait_for

SIZE = 4 * MB


def url_of(server):
    return f"http://127.0.0.1:{server.server_address[1]}"


def said(server, path):
    return [body for at, body in list(server.said) if at == path]


def is_loaded(state):
    return all(bool(torch.all(part == 1.0)) for part in state.values())


def test_a_lease_that_is_taken_back_in_mid_restore_is_asked_for_again_and_nothing_is_read_twice(
    serve, tmp_path
):
    """The second request says that it goes on, and with how much; the totals go on, too."""
    save(tmp_path, SIZE)

    def answers(path, body):
        if path == "slots":
            return grant(body["seq"], rate=4 * MB)
        if path != "leases/renew":
            return noted(body["seq"], plan=plan())
        held.wait(0.05)  # as a renewal is held, only shorter
        is_first = len(said(server, "slots")) == 1
        return gone(body["seq"]) if is_first and body["done_bytes"] > MB else grant(body["seq"], rate=4 * MB)

    held, server, state = threading.Event(), serve(answers), state_of(SIZE, 0.0)
    with rampmeter.Checkpointer(tmp_path, coordinator=url_of(server)) as ckpt:
        assert ckpt.restore(state) == 1
        wait_for(lambda: said(server, "leases/release"), what="the release")
    first, second = said(server, "slots")
    (release,) = said(server, "leases/release")
    total_bytes = first["num_bytes"]
    assert (first["kind"], first["started"], second["kind"], second["started"]) == (
        "read",
        False,
        "read",
        True,
    )
    assert MB < total_bytes - second["num_bytes"] < total_bytes
    assert (release["outcome"], release["done_bytes"]) == ("committed", total_bytes)
    assert {body["kind"] for body in said(server, "leases/renew")} == {"read"}
    assert is_loaded(state)


def test_a_slot_that_nobody_wants_any_more_is_not_waited_for(serve, tmp_path):
    """Its request is held by the coordinator when the restore is ended: it is dropped at once."""
    save(tmp_path, SIZE)
    release = threading.Event()

    def answers(path, body):
        if path == "slots":
            release.wait(20.0)
        return noted(body["seq"], plan=plan())

    server = serve(answers)
    interrupter = threading.Thread(
        target=lambda: (_wait_for_slot(server), ckpt._started.voice.desk._reads.stop("interrupted"))
    )
    with rampmeter.Checkpointer(tmp_path, coordinator=url_of(server)) as ckpt:
        interrupter.start()
        with pytest.raises(rampmeter.RestoreError):
            ckpt.restore(state_of(SIZE, 0.0))
        wait_for(
            lambda: ckpt._started.voice._keeper._unanswered is None,
            what="the end of the request",
            limit_s=5.0,
        )
    release.set()
    interrupter.join()
    assert said(server, "jobs/finish")


def _wait_for_slot(server):
    wait_for(lambda: said(server, "slots"), what="the request for a slot")


def test_wait_is_obeyed(serve, tmp_path):
    """Asked again when the coordinator said so, and read then."""
    save(tmp_path, SIZE)

    def answers(path, body):
        if path == "slots" and len(said(server, "slots")) < 3:
            return wait(body["seq"], retry_after_s=0.1)
        return (
            grant(body["seq"], rate=10**9)
            if path in ("slots", "leases/renew")
            else noted(body["seq"], plan=plan())
        )

    server, state = serve(answers), state_of(SIZE, 0.0)
    with rampmeter.Checkpointer(tmp_path, coordinator=url_of(server)) as ckpt:
        assert ckpt.restore(state) == 1
        assert ckpt.num_ungoverned == 0
    assert len(said(server, "slots")) == 3
    assert is_loaded(state)


def test_a_conversation_that_cannot_even_begin_holds_nobody_up(tmp_path, monkeypatch):
    """The restore waits out its delay, as for a coordinator that is silent."""

    def broken(*_):
        raise RuntimeError("no sockets today")

    monkeypatch.setattr(keeper, "Client", broken)
    save(tmp_path, SIZE)
    events, state = [], state_of(SIZE, 0.0)
    options = {"coordinator": "http://127.0.0.1:9", "seed": seed_for(0.2, 0.8), "on_event": events.append}
    with rampmeter.Checkpointer(tmp_path, **options) as ckpt:
        assert ckpt.restore(state) == 1
        assert ckpt.num_ungoverned == 1
    assert [e.bytes_per_s for e in events if isinstance(e, RestoreRateChanged)] == [None, 0]
    assert is_loaded(state)


def test_after_the_end_of_the_conversation_nobody_is_asked(tmp_path):
    """A restore after close() reads at once."""
    save(tmp_path, SIZE)
    state = state_of(SIZE, 0.0)
    with rampmeter.Checkpointer(tmp_path, coordinator="http://127.0.0.1:9") as ckpt:
        pass
    assert ckpt.restore(state) == 1
    assert (is_loaded(state), ckpt.num_ungoverned) == (True, 0)
