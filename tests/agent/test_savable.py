"""States that cannot be saved: one line says where the culprit stands, what is wrong and what to do next."""

import logging
import threading
import warnings

import pytest
import torch
from torch import nn

from rampmeter.sizing import staged_bytes, tensor_bytes

GOOD = {"t": torch.ones(3)}


class Holder:
    """An object whose state_dict gives what it was given."""

    def __init__(self, content):
        self.content = content

    def state_dict(self):
        return {"inner": self.content}

    def load_state_dict(self, state):
        self.content = state["inner"]


class Refuses(Holder):
    def state_dict(self):
        raise FileNotFoundError(2, "no such shard of mine")


class Unpicklable:
    def __reduce__(self):
        raise TypeError("not me\nand a second line")

    def __deepcopy__(self, memo):
        return self


def _trained(foo):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.state[model.bias]["foo"] = foo
    return {"model": model, "optimizer": optimizer}


def _with_buffer(tensor):
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].register_buffer("odd", tensor)
    return {"model": model}


def _quantized():
    return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


def _masked():
    return torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))


def _endless():
    content = {"t": torch.ones(1)}
    content["again"] = content
    return content


CASES = {
    "lock": (
        lambda: {"cfg": {"deep": [1, [threading.Lock()]]}},
        "cfg.deep.1.0 is of type lock",
        "leave it out",
    ),
    "generator": (lambda: {"cfg": {"g": (i for i in ())}}, "cfg.g is of type generator", "leave it out"),
    "lambda": (lambda: {"cfg": {"f": lambda: 1}}, "cfg.f is of type function", "leave it out"),
    "in a tuple": (lambda: {"cfg": {"x": (1, threading.Lock())}}, "cfg.x.1 is of type lock", "leave it out"),
    "odd keys": (lambda: {"cfg": {1: {2: threading.Lock()}}}, "cfg.1.2 is of type lock", "leave it out"),
    "class": (lambda: {"cfg": {"o": Unpicklable()}}, "cfg.o is of type Unpicklable", "(not me)"),
    "optimizer": (
        lambda: _trained(threading.Lock()),
        "optimizer.state.bias.foo is of type lock",
        "leave it out",
    ),
    "optimizer's": (
        lambda: _trained(lambda: 1),
        "optimizer.state.bias.foo is of type function",
        "leave it out",
    ),
    "object's": (lambda: {"thing": Holder(threading.Lock())}, "thing.inner is of type lock", "leave it out"),
    "object": (
        lambda: {"thing": Refuses(0)},
        "thing: state_dict() of this Refuses failed",
        "no such shard of mine",
    ),
    "nested": (
        lambda: {"x": {"n": torch.nested.nested_tensor([torch.ones(2)])}},
        "x.n is a nested",
        "unbind()",
    ),
    "jagged": (
        lambda: {"x": {"n": torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged)}},
        "x.n is a nested",
        "unbind()",
    ),
    "sparse": (
        lambda: {"x": [torch.eye(3).to_sparse()]},
        "x.0 is a tensor of layout torch.sparse_coo",
        "to_dense()",
    ),
    "meta": (lambda: {"m": nn.Linear(2, 2, device="meta")}, "m.weight is on the meta device", "to_empty"),
    "quantized": (lambda: _with_buffer(_quantized()), "model.0.odd is a quantized tensor", "dequantize()"),
    "masked": (lambda: {"x": {"n": _masked()}}, "x.n is of type MaskedTensor", "plain tensors"),
    "folded": (lambda: {"x": {"n": torch.ones(1).expand(5)}}, "x.n of shape [5]", "clone()"),
    "endless": (lambda: {"cfg": _endless()}, "cfg contains itself", "flat"),
    "one name": (lambda: {"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}, "two values of the state", "a.b"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_saved_is_named_in_one_line(make_saver, save, caplog, case: str) -> None:
    """Its place, what is wrong and the next step, never `unknown`; the save after it is made."""
    make, begin, then = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own of its odd tensors
        state = make()
        saver = make_saver(mode="thread")
        with caplog.at_level(logging.INFO, logger="rampmeter"):
            report = save(saver, 1, state)
    assert report.reason == "bad_state"
    (text,) = [said for said in caplog.messages if "was not saved" in said]
    assert text.startswith(f"step 1 was not saved (bad_state): {begin}")
    assert then in text
    assert "\n" not in text
    assert not any(record.exc_info for record in caplog.records)
    assert save(saver, 2, GOOD).committed


def test_a_size_is_told_of_what_can_be_saved(caplog) -> None:
    """Tensors that no checkpoint can hold have no memory to count: the first save names them."""
    state = {"s": torch.eye(3).to_sparse(), "m": torch.ones(5, device="meta"), **GOOD}
    assert (tensor_bytes(state), staged_bytes(state)) == (12, 12)


def test_the_warm_up_names_it_too(make_saver) -> None:
    """Whoever restores first hears of it hours before the first save."""
    with pytest.raises(Exception, match=r"^x\.n is a tensor of layout torch\.sparse_coo"):
        make_saver(mode="thread").warm_up({"x": {"n": torch.eye(2).to_sparse()}})


def test_an_unknown_error_is_told_with_its_type(make_saver, save, caplog, monkeypatch) -> None:
    """One line of it; where it came from only for those who ask for more."""
    saver = make_saver(mode="thread")

    def fail(*_args, **_kwargs):
        raise ZeroDivisionError("first\nsecond")

    monkeypatch.setattr(saver._stager, "stage", fail)
    with caplog.at_level(logging.DEBUG, logger="rampmeter"):
        assert save(saver, 1, GOOD).reason == "unknown"
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in warned] == [
        "step 1 was not saved (unknown): ZeroDivisionError: first"
    ]
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.DEBUG)
