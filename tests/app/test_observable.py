from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.observable import Observable


class Lamp(QObject):
    on = Observable(False)
    on_changed = Signal(bool)


def test_it_tells_when_the_value_differs_and_only_then() -> None:
    lamp, told = Lamp(), []
    lamp.on_changed.connect(told.append)
    for value in (False, True, True, False):
        lamp.on = value
    assert told == [True, False]


def test_every_object_has_its_own_value() -> None:
    one, other = Lamp(), Lamp()
    one.on = True
    assert one.on
    assert not other.on
