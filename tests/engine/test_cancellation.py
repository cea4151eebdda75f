"""A token is cancelled once, for everyone, from any thread."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle as Names
from hypothesis.stateful import RuleBasedStateMachine, consumes, invariant, rule

from engine.cancellation import CancellationToken
from engine.errors import OperationCancelled, SafelightError


def test_a_cancelled_token_raises_its_reason() -> None:
    token = CancellationToken()
    token.raise_if_cancelled()
    token.cancel("Enough.")
    assert token.is_cancelled
    with pytest.raises(OperationCancelled, match=r"^Enough\.$"):
        token.raise_if_cancelled()


def test_without_a_reason_the_sentence_still_says_what_happened() -> None:
    token = CancellationToken()
    token.cancel()
    with pytest.raises(SafelightError, match=r"^Cancelled\.$"):
        token.raise_if_cancelled()


def test_the_first_reason_stays() -> None:
    token = CancellationToken()
    token.cancel("first")
    token.cancel("second")
    assert token.reason == "first"


def test_callbacks_run_in_order_on_the_cancelling_thread() -> None:
    token, ran = CancellationToken(), []
    for number in range(3):
        token.on_cancel(partial(lambda number: ran.append((number, threading.current_thread())), number))
    thread = threading.Thread(target=token.cancel)
    thread.start()
    thread.join()
    assert ran == [(number, thread) for number in range(3)]


def test_a_callback_sees_the_token_cancelled_with_its_reason() -> None:
    token, seen = CancellationToken(), []
    token.on_cancel(lambda: seen.append((token.is_cancelled, token.reason)))
    token.cancel("why")
    assert seen == [(True, "why")]


def test_registering_with_a_cancelled_token_runs_at_once() -> None:
    token, ran = CancellationToken(), []
    token.cancel()
    unregister = token.on_cancel(lambda: ran.append(1))
    assert ran == [1]
    unregister()
    unregister()


def test_a_failing_callback_keeps_no_other_from_running(caplog: pytest.LogCaptureFixture) -> None:
    token, ran = CancellationToken(), []
    token.on_cancel(lambda: ran.append("before"))
    token.on_cancel(lambda: [][0])
    token.on_cancel(lambda: ran.append("after"))
    token.cancel()
    assert ran == ["before", "after"]
    assert "IndexError" in caplog.text


def test_a_callback_may_cancel_register_and_unregister() -> None:
    token, ran = CancellationToken(), []

    def callback() -> None:
        ran.append("outer")
        unregister()
        token.cancel("again")
        token.on_cancel(lambda: ran.append("inner"))

    unregister = token.on_cancel(callback)
    token.cancel("once")
    assert ran == ["outer", "inner"]
    assert token.reason == "once"


def test_a_child_is_cancelled_with_its_parent_and_its_reason() -> None:
    parent = CancellationToken()
    with parent.linked() as child, child.linked() as grandchild:
        parent.cancel("all of you")
        assert (child.reason, grandchild.reason) == ("all of you", "all of you")


def test_a_child_can_be_cancelled_alone() -> None:
    parent = CancellationToken()
    with parent.linked() as child, parent.linked() as sibling:
        child.cancel()
        assert child.is_cancelled
        assert not parent.is_cancelled
        assert not sibling.is_cancelled


def test_a_child_of_a_cancelled_parent_is_born_cancelled() -> None:
    parent = CancellationToken()
    parent.cancel("too late")
    assert parent.linked().reason == "too late"


def test_a_closed_child_is_left_alone_and_forgotten() -> None:
    parent = CancellationToken()
    with parent.linked() as child:
        pass
    alive = weakref.ref(child)
    parent.cancel()
    assert not child.is_cancelled
    del child
    gc.collect()
    assert alive() is None


def test_nobody_can_cancel_none() -> None:
    ran: list[int] = []
    CancellationToken.none.on_cancel(lambda: ran.append(1))()
    CancellationToken.none.raise_if_cancelled()
    with pytest.raises(RuntimeError):
        CancellationToken.none.cancel()
    with CancellationToken.none.linked() as child:
        child.cancel("mine alone")
    assert not CancellationToken.none.is_cancelled
    assert ran == []


def test_an_error_of_cancellation_survives_pickling() -> None:
    assert str(pickle.loads(pickle.dumps(OperationCancelled("why")))) == "why"


class Storm:
    """Eight threads that register ten callbacks each, taking every third back, while two threads cancel."""

    def __init__(self) -> None:
        self.token = CancellationToken()
        self.ran = [0] * 80
        self.taken_back = [False] * 80
        self._start = threading.Barrier(10)

    def blow(self) -> None:
        threads = [threading.Thread(target=self._register, args=(first,)) for first in range(0, 80, 10)]
        threads += [threading.Thread(target=self._cancel, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _register(self, first: int) -> None:
        self._start.wait()
        for number in range(first, first + 10):
            unregister = self.token.on_cancel(partial(self._run, number))
            if number % 3 == 0:
                unregister()
                self.taken_back[number] = True

    def _run(self, number: int) -> None:
        self.ran[number] += 1

    def _cancel(self, reason: str) -> None:
        self._start.wait()
        self.token.cancel(reason)


def test_threads_that_cancel_register_and_unregister_run_every_callback_once() -> None:
    """Each callback runs exactly once, or never where it was taken back before the token was cancelled."""
    for _ in range(50):
        storm = Storm()
        storm.blow()
        assert storm.token.reason in ("one", "two")
        for ran, taken_back in zip(storm.ran, storm.taken_back, strict=True):
            assert ran == 1 or (ran == 0 and taken_back)


class Tokens(RuleBasedStateMachine):
    """A tree of tokens against a model of it: sets of who is cancelled, and how often each callback ran."""

    tokens: Names = Names("tokens")
    unregisters: Names = Names("unregisters")

    def __init__(self) -> None:
        super().__init__()
        self.parent: dict[int, int | None] = {}
        self.by_number: dict[int, CancellationToken] = {}
        self.cancelled: dict[int, str] = {}
        self.callbacks: list[list[int]] = []
        self.owner: list[int] = []
        self.due: list[int] = []
        self.taken_back: set[int] = set()

    def _add(self, token: CancellationToken, parent: int | None) -> int:
        number = len(self.by_number)
        self.by_number[number] = token
        self.parent[number] = parent
        if parent in self.cancelled:
            self.cancelled[number] = self.cancelled[parent]
        return number

    @rule(target=tokens)
    def make(self) -> int:
        return self._add(CancellationToken(), None)

    @rule(target=tokens, parent=tokens)
    def link(self, parent: int) -> int:
        return self._add(self.by_number[parent].linked(), parent)

    @rule(token=tokens)
    def unlink(self, token: int) -> None:
        linked = self.by_number[token]
        if hasattr(linked, "close"):
            linked.close()
            self.parent[token] = None

    @rule(target=unregisters, token=tokens)
    def register(self, token: int) -> tuple[int, object]:
        ran: list[int] = []
        number = len(self.callbacks)
        self.callbacks.append(ran)
        self.owner.append(token)
        self.due.append(1 if token in self.cancelled else 0)
        return number, self.by_number[token].on_cancel(lambda: ran.append(1))

    @rule(registered=consumes(unregisters))
    def unregister(self, registered: tuple[int, object]) -> None:
        number, unregister = registered
        unregister()  # type: ignore[operator]
        self.taken_back.add(number)

    @rule(token=tokens, reason=st.text(max_size=3))
    def cancel(self, token: int, reason: str) -> None:
        self.by_number[token].cancel(reason)
        waiting = [token]
        while waiting:
            number = waiting.pop()
            if number in self.cancelled:
                continue
            self.cancelled[number] = reason
            waiting += [child for child, parent in self.parent.items() if parent == number]
            for callback, owner in enumerate(self.owner):
                if owner == number and callback not in self.taken_back:
                    self.due[callback] = 1

    @invariant()
    def agrees(self) -> None:
        for number, token in self.by_number.items():
            assert token.is_cancelled == (number in self.cancelled)
            assert token.reason == self.cancelled.get(number)
        assert [len(ran) for ran in self.callbacks] == self.due


TestTokens = Tokens.TestCase
TestTokens.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
