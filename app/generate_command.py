"""`safelight generate`: the options become requests, the engine's events a progress bar, and the pictures paths."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from app import __version__, folders, logs
from app.command_line import BAD_USAGE, FAILED, INTERRUPTED, OK
from app.plain_text import plain
from app.progress_bar import ProgressBar
from engine.engine import Engine
from engine.errors import SafelightError
from engine.events import Cancelled, Failed, Finished
from engine.jobs import Job
from engine.models.description import describe
from engine.pictures.metadata import read_settings
from engine.request import MAX_SEED, MAX_THREADS, EngineSettings, GenerationRequest, LoraUse, Sampler, Switch, Weights
from engine.validation import first_fault

MAX_COUNT = 10_000

log = logging.getLogger(__name__)


class UsageError(Exception):
    """The options ask for what can't be done; the message is a sentence."""


def run(options: argparse.Namespace) -> int:
    """Make what the options ask for and return the exit status."""
    log_file = logs.start(folders.logs())
    logging.captureWarnings(True)
    try:
        requests = requests_from(options)
        settings = _settings(options)
    except (UsageError, SafelightError) as error:
        return _complain(str(error), BAD_USAGE)
    try:
        with Engine(settings, __version__) as engine:
            return asyncio.run(_make(engine, requests, options))
    except SafelightError as error:
        return _complain(str(error), FAILED)
    except BrokenPipeError:
        sys.stdout = sys.stderr  # whoever read the paths has left; the interpreter would try to flush once more
        return FAILED
    except Exception as error:
        log.exception("safelight generate failed")
        return _complain(f"Something went wrong inside Safelight ({error}). The details are in {log_file}.", FAILED)


def requests_from(options: argparse.Namespace) -> list[GenerationRequest]:
    """One request per picture: the options, over the settings of `--like`, over the model's defaults.

    Raises `UsageError` or a `SafelightError`, both with a sentence.
    """
    if options.prompt is None and options.like is None:
        raise UsageError("A prompt is missing, as in: safelight generate 'a red apple, 3d style'.")
    if not 1 <= options.count <= MAX_COUNT:
        raise UsageError(f"--count is {options.count}; it must be from 1 to {MAX_COUNT:,}.")
    if options.threads is not None and not 1 <= options.threads <= MAX_THREADS:
        raise UsageError(f"--threads is {options.threads}; it must be from 1 to {MAX_THREADS}.")
    like = read_settings(options.like)[0] if options.like is not None else None
    model = _model(options.model) or (like.model if like is not None else "starter")
    description = describe(model)
    if options.size is not None and (options.width, options.height) != (None, None):
        raise UsageError("--size says both sides; leave out --width and --height, or --size.")
    width, height = options.size or (None, None)
    given = {
        "prompt": None if options.prompt is None else plain(options.prompt),
        "negative_prompt": None if options.negative is None else plain(options.negative),
        "width": width if options.width is None else options.width,
        "height": height if options.height is None else options.height,
        "steps": options.steps,
        "guidance_scale": options.guidance,
        "sampler": _sampler(options.sampler),
        "seed": options.seed if options.seed is not None or like is not None else secrets.randbelow(MAX_SEED + 1),
        "model": model,
        "backend": options.backend,
        "loras": None if options.lora is None else [_lora(text) for text in options.lora],
    }
    base = like or description.defaults
    first = _validated(base.model_dump() | {name: value for name, value in given.items() if value is not None})
    description.check(first)
    return [
        first.model_copy(update={"seed": (first.seed + number) % (MAX_SEED + 1)}) for number in range(options.count)
    ]


def _model(name: str | None) -> str | None:
    """The model as a request names it: a folder by its whole path, so that the picture can name it anywhere."""
    return str(Path(name).expanduser().absolute()) if name and name != "starter" else name


def _lora(text: str) -> LoraUse:
    """FILE or FILE:STRENGTH. The file by its whole path, so that the picture can name it anywhere."""
    name, colon, number = text.rpartition(":")
    try:
        strength = float(number)
    except ValueError:
        name, colon, strength = text, "", 1.0
    if not colon or Path(text).expanduser().exists():  # a name may hold a colon itself
        name, strength = text, 1.0
    file = Path(name).expanduser().absolute()
    if not file.is_file():
        raise UsageError(f"{file} isn't a file. --lora takes a .safetensors file, as in: --lora clay.safetensors:0.8.")
    if not -10 <= strength <= 10:
        raise UsageError(f"--lora {text}: the strength must be from -10 to 10.")
    return LoraUse(file=str(file), strength=strength)


def _sampler(name: str | None) -> Sampler | None:
    if name is None:
        return None
    known = {_letters(sampler): sampler for sampler in Sampler}
    if (sampler := known.get(_letters(name))) is None:
        raise UsageError(f"There is no sampler '{name}'. There are {', '.join(Sampler)}.")
    return sampler


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold().replace("+", "p"))


_OPTIONS = {"prompt": "PROMPT", "negative_prompt": "--negative", "guidance_scale": "--guidance"}


def _validated(values: dict[str, Any]) -> GenerationRequest:
    try:
        return GenerationRequest.model_validate(values)
    except ValidationError as error:
        field, what = first_fault(error)
        option = _OPTIONS.get(field, f"--{field}")
        limits = {
            name: getattr(limit, name)
            for limit in GenerationRequest.model_fields[field].metadata
            for name in ("ge", "le")
            if hasattr(limit, name)
        }
        if len(limits) == 2:
            range_ = f"it must be from {limits['ge']:,} to {limits['le']:,}"
            raise UsageError(f"{option} is {values[field]}; {range_}.") from error
        raise UsageError(f"{option} {what}.") from error


def _settings(options: argparse.Namespace) -> EngineSettings:
    return EngineSettings(
        output_folder=_output_folder(options.out),
        plan_folder=folders.plans(),
        previews=False,
        vae_tiling=Switch(options.vae_tiling),
        vae_slicing=Switch(options.vae_slicing),
        # A plan that is built beside the only picture would slow it down and come too late for it.
        build_plans=options.count > 1,
        threads=options.threads or 0,
        weights=Weights(options.weights),
    )


def _output_folder(chosen: Path | None) -> Path:
    """The folder, made before the work, so that a wrong name is known at once."""
    folder = folders.pictures() if chosen is None else chosen.expanduser().absolute()
    try:
        folder.mkdir(parents=chosen is None, exist_ok=True)
    except FileNotFoundError:
        if folder.parent.is_dir():
            raise UsageError(f"{folder} can't be made there. Choose another folder with --out.") from None
        raise UsageError(
            f"{folder.parent} doesn't exist. Make it first, or choose another folder with --out."
        ) from None
    except FileExistsError:
        raise UsageError(f"{folder} is a file. Choose a folder with --out.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{folder} can't be used ({reason}). Choose another folder with --out.") from None
    return folder


async def _make(engine: Engine, requests: list[GenerationRequest], options: argparse.Namespace) -> int:
    if options.seed is None and options.like is None and not options.quiet:
        _tell(f"Seed {requests[0].seed}")
    jobs: list[Job] = []

    def stop() -> None:
        for job in jobs:
            job.cancel("Stopped with Ctrl-C.")

    with _interrupts(stop):
        jobs.extend(engine.submit(request) for request in requests)
        for number, job in enumerate(jobs, 1):
            name = f"seed {job.request.seed}" if len(jobs) == 1 else f"{number}/{len(jobs)}, seed {job.request.seed}"
            status = await _follow(job, name, options)
            if status != OK:
                return status
    return OK


async def _follow(job: Job, name: str, options: argparse.Namespace) -> int:
    end = None
    with ProgressBar(name, job.request.steps, options.quiet) as bar:
        async for event in job.events:
            bar.show(event)
            end = event
    match end:
        case Finished():
            return _hand_over(end, options)
        case Failed():
            return _complain(end.message, FAILED)
        case Cancelled():
            return _complain("Stopped.", INTERRUPTED)
    return FAILED


def _hand_over(finished: Finished, options: argparse.Namespace) -> int:
    if options.json:
        line = json.dumps(finished.model_dump(mode="json", exclude={"kind", "job", "image"}), ensure_ascii=False)
    else:
        line = str(finished.path or "")
    if line:
        _print(line)
    return OK if finished.save_error is None else _complain(finished.save_error, FAILED)


@contextmanager
def _interrupts(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls `stop` on the loop, once; the second Ctrl-C ends the process as the system does it."""
    loop = asyncio.get_running_loop()

    def on_signal(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        loop.call_soon_threadsafe(stop)

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is on_signal:
            signal.signal(signal.SIGINT, before)


def _complain(sentence: str, status: int) -> int:
    _tell(f"safelight: {sentence}")
    return status


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201
