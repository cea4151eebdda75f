"""Properties of a QObject that tell when they change."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class Observable(Generic[T]):
    """A property that emits the object's `<name>_changed` signal with the new value, only when the value differs.

    class Studio(QObject):
        running = Observable(False)
        running_changed = Signal(bool)
    """

    def __init__(self, initial: T) -> None:
        self._initial = initial

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = f"_{name}"
        self._signal = f"{name}_changed"

    @overload
    def __get__(self, instance: None, owner: type) -> Observable[T]: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> T | Observable[T]:
        if instance is None:
            return self
        value: T = instance.__dict__.get(self._key, self._initial)
        return value

    def __set__(self, instance: Any, value: T) -> None:
        if instance.__dict__.get(self._key, self._initial) == value:
            return
        instance.__dict__[self._key] = value
        getattr(instance, self._signal).emit(value)
