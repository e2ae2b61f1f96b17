"""The servers behind the gateway."""

from __future__ import annotations

import asyncio

import pytest

from callgate import Replay
from callgate.apps.gateway.backends import Backends
from callgate.errors import ModelMissing


def test_a_request_goes_to_the_first_that_has_the_model() -> None:
    backends = Backends([Replay([], model="a"), Replay([], model="b"), Replay([], model="b")])

    async def found(model: str) -> list[int]:
        return [backends.all.index(backend) for backend in await backends.having(model)]

    assert asyncio.run(found("b")) == [1, 2]
    assert asyncio.run(found("a")) == [0]


def test_a_model_that_nobody_has_is_named_with_those_there_are() -> None:
    backends = Backends([Replay([], model="a"), Replay([], model="b")])
    with pytest.raises(ModelMissing) as caught:
        asyncio.run(backends.having("c"))
    assert caught.value.available == ("a", "b")
