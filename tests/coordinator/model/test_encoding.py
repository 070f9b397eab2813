"""The one encoding: the same JSON as the agent's own, whatever the message, and nothing that the wire forbids."""

import json

import pytest

from rampmeter.core import decode
from rampmeter_coordinator.codec import adapter
from rampmeter_coordinator.model.commands import Disconnected, Refusal, Tick
from rampmeter_coordinator.model.encoding import encode
from support.examples import ANSWERS, REQUESTS, fields_of

MESSAGES = [*REQUESTS.items(), *ANSWERS.items()]


@pytest.mark.parametrize(("cls", "example"), MESSAGES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_message_is_written_as_the_agent_writes_it(cls, example):
    """With every field, and with the required ones alone; both sides read it back as the same value."""
    required = {field.path.split(".")[0] for field in fields_of(cls) if field.required}
    for fields in (example, {name: value for name, value in example.items() if name in required}):
        message = decode.build(cls, fields)
        raw = encode(message)
        assert json.loads(raw) == json.loads(decode.encode(message))  # 2e-9 may be spelt 2e-09
        assert decode.decode(cls, raw) == adapter(cls).validate_json(raw) == message


def test_what_is_none_is_left_out():
    """Absent is the only way to say nothing."""
    refusal = Refusal(reason="old_seq", status=409, detail="late")
    assert encode(refusal) == b'{"reason":"old_seq","status":409,"detail":"late"}'


def test_commands_of_the_engine_itself_have_a_form():
    """Also those without any field."""
    assert encode(Tick()) == b"{}"
    assert encode(Disconnected(job_uid="a", attempt=1, seq=2)) == b'{"job_uid":"a","attempt":1,"seq":2}'
