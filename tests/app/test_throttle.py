from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.throttle import Throttle


@pytest.fixture
def calls() -> list[int]:
    return []


def test_the_first_call_runs_at_once(qtbot: QtBot, calls: list[int]) -> None:
    Throttle(calls.append, 1000)(1)
    assert calls == [1]


def test_of_calls_that_come_too_fast_the_newest_wins(qtbot: QtBot, calls: list[int]) -> None:
    throttle = Throttle(calls.append, 30)
    for at in range(10):
        throttle(at)
    assert calls == [0]
    qtbot.waitUntil(lambda: len(calls) > 1)
    assert calls == [0, 9]


def test_dropped_calls_never_come(qtbot: QtBot, calls: list[int]) -> None:
    throttle = Throttle(calls.append, 10)
    throttle(1)
    throttle(2)
    throttle.drop()
    later = Throttle(lambda: calls.append(99), 30)
    later()
    later()
    qtbot.waitUntil(lambda: calls.count(99) == 2)
    assert calls == [1, 99, 99]
