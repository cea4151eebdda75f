"""A job ends once, with its picture or its reason, whatever its listener does."""

from __future__ import annotations

import asyncio

import pytest

from engine.errors import ModelRefused, OperationCancelled
from engine.events import Cancelled, Event, Failed, Finished, MadeWith, Queued, RgbImage
from engine.jobs import Job
from engine.request import GenerationRequest

REQUEST = GenerationRequest(prompt="a red apple")


def finished(job: Job) -> Finished:
    image = RgbImage(width=1, height=1, pixels=b"abc")
    return Finished(
        job=job.id, request=job.request, made_with=MadeWith(plan="eager", batch=2), image=image, seconds=1.0
    )


def test_jobs_are_numbered() -> None:
    first, second = Job(REQUEST), Job(REQUEST)
    assert second.id == first.id + 1


def test_the_picture_is_the_result() -> None:
    job = Job(REQUEST)
    job.emit(finished(job))
    assert job.result(0) == finished(job)


def test_a_cancelled_job_raises_why() -> None:
    job = Job(REQUEST)
    job.emit(Cancelled(job=job.id, reason="Enough."))
    with pytest.raises(OperationCancelled, match="Enough"):
        job.result(0)


def test_a_failed_job_raises_its_error_and_says_its_sentence() -> None:
    heard: list[Event] = []
    job = Job(REQUEST, heard.append)
    job.fail(ModelRefused("It is a pickle."))
    with pytest.raises(ModelRefused, match="pickle"):
        job.result(0)
    assert heard == [Failed(job=job.id, message="It is a pickle.")]


def test_cancelling_reaches_the_token_once() -> None:
    job = Job(REQUEST)
    job.cancel("first")
    job.cancel("second")
    assert job.token.reason == "first"


def test_the_listener_and_the_stream_hear_the_same() -> None:
    heard: list[Event] = []
    job = Job(REQUEST, heard.append)
    job.emit(Queued(job=job.id, ahead=0))
    job.emit(finished(job))

    async def read() -> list[Event]:
        return [event async for event in job.events]

    assert asyncio.run(read()) == heard == [Queued(job=job.id, ahead=0), finished(job)]


def test_a_failing_listener_changes_nothing_for_the_job(caplog: pytest.LogCaptureFixture) -> None:
    def listen(event: Event) -> None:
        raise ZeroDivisionError(event.kind)

    job = Job(REQUEST, listen)
    job.emit(Queued(job=job.id, ahead=0))
    job.emit(finished(job))
    assert job.result(0) == finished(job)
    failed = Job(REQUEST, listen)
    failed.fail(ModelRefused("It is a pickle."))
    with pytest.raises(ModelRefused):
        failed.result(0)
    assert caplog.text.count("ZeroDivisionError: ") == 3
