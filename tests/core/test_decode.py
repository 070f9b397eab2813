"""The standard library's decoder and pydantic give the same verdicts on the same bytes."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from rampmeter.core.decode import decode, decode_answer, encode
from rampmeter.core.errors import ProtocolError
from rampmeter.core.messages import FailReason, Heartbeat, Release
from support.examples import ANSWERS, REQUESTS, body_with, body_without, fields_of

MESSAGES = REQUESTS | ANSWERS
FIELDS = [(cls, field) for cls in MESSAGES for field in fields_of(cls)]
IDS = [f"{cls.__name__}.{field.path}" for cls, field in FIELDS]


def by_decode(cls, body):
    """The field that core.decode refuses, or None if it takes the body."""
    try:
        decode(cls, body)
    except ProtocolError as error:
        return str(error).split(":")[0]
    return None


def by_pydantic(cls, body):
    """The field that pydantic refuses, or None if it takes the body."""
    try:
        TypeAdapter(cls).validate_json(body)
    except ValidationError as error:
        return ".".join(map(str, error.errors()[0]["loc"]))
    return None


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_whole_message_is_taken_by_both_and_comes_back_the_same(cls):
    """Both sides read the same value from an example, and its JSON says what the example said."""
    body = json.dumps(MESSAGES[cls]).encode()
    message = decode(cls, body)
    assert message == TypeAdapter(cls).validate_json(body)
    assert json.loads(encode(message)) == MESSAGES[cls]


@pytest.mark.parametrize("cls", ANSWERS, ids=lambda cls: cls.__name__)
def test_answers_are_told_apart_by_their_kind(cls):
    """decode_answer finds the class from `answer`."""
    assert type(decode_answer(json.dumps(ANSWERS[cls]).encode())) is cls


@pytest.mark.parametrize(("cls", "field"), FIELDS, ids=IDS)
def test_bad_values_are_refused_by_both_naming_the_field(cls, field):
    """Every bad value of every field is refused by both sides, and both name that field."""
    for raw in field.bad_values.values():
        body = body_with(MESSAGES[cls], field.path, raw)
        assert by_decode(cls, body) == by_pydantic(cls, body) == field.path


@pytest.mark.parametrize(("cls", "field"), FIELDS, ids=IDS)
def test_a_missing_field_has_the_same_verdict_on_both_sides(cls, field):
    """A missing field is refused by name where it is required, and taken where it is optional."""
    body = body_without(MESSAGES[cls], field.path)
    assert by_decode(cls, body) == by_pydantic(cls, body) == (field.path if field.required else None)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"{" * 100_000, b"[" * 100_000]
)
def test_what_is_no_json_object_is_refused_by_both(body):
    """Neither side takes anything but a JSON object, however deep or broken."""
    for cls in REQUESTS:
        assert by_decode(cls, body) is not None
        assert by_pydantic(cls, body) is not None


def test_unknown_fields_are_ignored_and_unknown_answer_words_are_the_careful_choice():
    """A newer coordinator may say more: what is unknown is ignored or mapped to `unknown`."""
    body = json.dumps(
        ANSWERS[max(ANSWERS, key=lambda cls: cls.__name__)] | {"reason": "new", "extra": {"a": 1}}
    )
    assert decode_answer(body.encode()).reason == "unknown"


@pytest.mark.parametrize("cls", [Heartbeat, Release])
def test_an_unknown_reason_of_a_failed_save_costs_no_agent_its_request(cls):
    """An agent may be newer than its coordinator: both sides read `unknown`."""
    body = body_with(REQUESTS[cls], "last_failure", '"of_a_later_release"')
    assert decode(cls, body).last_failure is FailReason.UNKNOWN
    assert TypeAdapter(cls).validate_json(body).last_failure is FailReason.UNKNOWN
