"""How far a run is, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from PySide6.QtCore import QCoreApplication

from engine.events import Building, Decoding, Event, Loading, Queued, Step

_SMOOTHING = 0.3


@dataclass(frozen=True)
class Progress:
    """What the progress line and the status line show; `fraction` is in 0..1, None while that is not known.

    `solid` is set while the picture is decoded: the line is full and stays.
    """

    text: str = ""
    fraction: float | None = None
    solid: bool = False
    plan: str = ""


class ProgressReader:
    """Turns the events of a run of `count` pictures into `Progress`, one after the other.

    Rates are exponential averages over the steps of this run, so that one slow step doesn't throw the estimate.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._picture = 0
        self._seconds: float | None = None
        self._last = Progress()

    def start_picture(self, index: int) -> None:
        """The events that follow are those of picture `index` (0-based)."""
        self._picture = index

    def read(self, event: Event) -> Progress:
        """The progress after this event."""
        match event:
            case Queued(ahead=ahead):
                text = _tr("Waiting for {n} pictures").format(n=ahead) if ahead else _tr("Starting")
                self._last = Progress(self._of_count(text))
            case Loading(what=what, fraction=fraction):
                text = _tr("Loading {what}, {percent} %").format(what=what, percent=round(fraction * 100))
                if fraction == 0:  # the import of torch can't say how far it is
                    text = _tr("Loading {what}").format(what=what)
                self._last = Progress(self._of_count(text), fraction)
            case Building(what=what, fraction=fraction):
                text = _tr("Building a plan for {what}, {percent} %").format(what=what, percent=round(fraction * 100))
                self._last = Progress(self._of_count(text), fraction)
            case Step():
                self._last = self._step(event)
            case Decoding():
                self._last = replace(self._last, text=self._of_count(_tr("Decoding")), fraction=1.0, solid=True)
        return self._last

    def _step(self, event: Step) -> Progress:
        if self._seconds is None or event.step <= 2:
            self._seconds = event.seconds  # the first step of a run warms caches and would mislead
        else:
            self._seconds += _SMOOTHING * (event.seconds - self._seconds)
        left = event.steps - event.step + (self._count - 1 - self._picture) * event.steps
        parts = [_tr("Step {step} of {steps}").format(step=event.step, steps=event.steps)]
        if self._seconds > 0:
            parts.append(rate_text(1 / self._seconds))
            if left:
                parts.append(_tr("{time} left").format(time=time_text(left * self._seconds)))
        return Progress(self._of_count(" · ".join(parts)), event.step / event.steps, plan=event.plan)

    def _of_count(self, text: str) -> str:
        if self._count == 1:
            return text
        return _tr("Picture {n} of {count}").format(n=self._picture + 1, count=self._count) + " · " + text


def rate_text(per_second: float) -> str:
    """Steps a second, or seconds a step where that reads better."""
    if per_second >= 1:
        return _tr("{rate} steps/s").format(rate=f"{per_second:.1f}")
    return _tr("{time} s/step").format(time=f"{1 / per_second:.1f}")


def time_text(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 60:
        return _tr("{s} s").format(s=whole)
    if whole < 3600:
        return _tr("{m} min {s} s").format(m=whole // 60, s=whole % 60)
    return _tr("{h} h {m} min").format(h=whole // 3600, m=whole % 3600 // 60)


def plan_text(plan: str) -> str:
    """A kind of plan in words: who runs the steps."""
    if not plan:
        return ""
    if plan == "eager":
        return _tr("Eager")
    return _tr("Compiled ({plan})").format(plan=plan.replace("openvino", "OpenVINO").replace("-", " "))


def _tr(text: str) -> str:
    return QCoreApplication.translate("Progress", text)
