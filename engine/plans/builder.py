"""Builds plans on a background thread: finds or converts the model, then compiles it for a signature."""

from __future__ import annotations

import hashlib
import logging
import platform
import queue
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled, PlanFailed
from engine.plans.inductor import InductorPlan
from engine.plans.memory import check_memory
from engine.plans.openvino import OpenVinoPlan
from engine.plans.plan import INDUCTOR, Plan, Signature
from engine.plans.store import PlanStore, sha256
from engine.plans.wire import ChildProcess
from engine.request import Weights

log = logging.getLogger(__name__)

CONVERTER_REVISION = 2  # raised when converter.py makes a different model from the same module
_LIBRARIES = ("openvino", "torch", "diffusers", "transformers")


@dataclass(frozen=True)
class PlanSource:
    """What a plan is made from: one component of a model folder with the weights that lie there.

    `adapted` names the layers that take low-rank pairs, as further inputs. `weights` says how OpenVINO plans keep them.
    """

    folder: Path
    component: str
    part: str
    adapted: tuple[str, ...] = ()
    weights: Weights = Weights.FULL


@dataclass
class _Build:
    source: PlanSource
    kind: str
    signature: Signature
    token: CancellationToken
    future: Future[Plan]


class PlanBuilder:
    """One build at a time, in the order asked for. `on_change` hears the names of the components being built.

    `folder` keeps converted models from one run of the program to the next; None keeps them in a temporary folder.
    """

    def __init__(
        self,
        folder: Path | None,
        on_change: Callable[[tuple[str, ...]], None] = lambda names: None,
        device: str = "cpu",
        threads: Callable[[], int] = lambda: 0,
    ) -> None:
        """`device` is the torch device that inductor compiles for; `threads` is asked at each build."""
        self._temporary = tempfile.TemporaryDirectory(prefix="safelight-plans-") if folder is None else None
        self._folder = Path(self._temporary.name) if self._temporary is not None else folder or Path()
        self._store = PlanStore(self._folder)
        self._on_change = on_change
        self._device = device
        self._threads = threads
        self._builds: queue.SimpleQueue[_Build | None] = queue.SimpleQueue()
        self._pending: list[_Build] = []
        self._life = CancellationToken()
        self._converter: ChildProcess | None = None
        self._content: dict[tuple[Path, int, int], str] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def is_building(self) -> bool:
        return bool(self._pending)

    def build(self, source: PlanSource, kind: str, signature: Signature, token: CancellationToken) -> Future[Plan]:
        """Ask for a plan. The future fails with `PlanFailed`, or with `OperationCancelled` once nothing of it runs."""
        build = _Build(source, kind, signature, token, Future())
        with self._lock:
            if self._life.is_cancelled:
                raise HostClosed("The engine is closed.")
            self._pending.append(build)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="safelight-builder", daemon=True)
                self._thread.start()
        self._builds.put(build)
        self._tell()
        return build.future

    def _run(self) -> None:
        while (build := self._builds.get()) is not None:
            self._settle(build)
            with self._lock:
                self._pending.remove(build)
                idle = not self._pending
            del build  # it holds the plan, which belongs to who asked for it
            if idle:
                self._end_converter()
            self._tell()
        self._end_converter()

    def _settle(self, build: _Build) -> None:
        with self._life.linked() as token:
            unregister = build.token.on_cancel(token.cancel)
            try:
                build.future.set_result(self._build(build, token))
            except (PlanFailed, OperationCancelled) as error:
                build.future.set_exception(error)
            except Exception as error:
                log.exception("building a plan failed")
                build.future.set_exception(PlanFailed(f"A plan could not be built: {error}"))
            finally:
                unregister()

    def _tell(self) -> None:
        with self._lock:
            names = tuple(dict.fromkeys(build.source.component for build in self._pending))
        try:
            self._on_change(names)
        except Exception:  # a listener's mistake must not end the thread that builds
            log.exception("a listener failed")

    def _build(self, build: _Build, token: CancellationToken) -> Plan:
        token.raise_if_cancelled()
        source = build.source
        if build.kind == INDUCTOR:
            check_memory(source.component, source.folder, source.part)
            cache = self._folder / ".inductor"
            return InductorPlan(
                source.folder, source.component, build.signature, cache, self._device, token, self._threads(),
                source.adapted,
            )  # fmt: skip
        key = self._key(source, token)
        stored = self._store.find(key, token)
        check_memory(source.component, source.folder, source.part, source.weights, stored is not None)
        path = stored or self._store.add(key, lambda target: self._convert(source, target, token), token)
        return OpenVinoPlan(path, build.signature, token, self._threads(), from_store=stored is not None)

    def _convert(self, source: PlanSource, target: Path, token: CancellationToken) -> None:
        token.raise_if_cancelled()
        if self._converter is None or not self._converter.is_running:
            self._converter = ChildProcess("--plan-converter")
        child = self._converter
        unregister = token.on_cancel(child.kill)
        try:
            child.wire.send(
                "convert", str(source.folder), source.component, str(target), source.adapted, source.weights
            )
            answer = child.wire.receive()
        except (EOFError, OSError, ValueError) as error:
            token.raise_if_cancelled()
            raise PlanFailed(f"The process converting the {source.component} ended unexpectedly.") from error
        finally:
            unregister()
        if answer[0] != "converted":
            raise PlanFailed(f"OpenVINO can't convert the {source.component}: {answer[1]}")

    def _end_converter(self) -> None:
        if self._converter is not None:
            self._converter.kill()
            self._converter = None

    def _key(self, source: PlanSource, token: CancellationToken) -> str:
        parts = [f"{name} {version(name)}" for name in _LIBRARIES]
        parts += [f"revision {CONVERTER_REVISION}", source.component, platform.machine(), *source.adapted]
        if source.weights is not Weights.FULL:
            parts.append(f"weights {source.weights}")
        place = source.folder / source.part
        for file in sorted([*place.glob("*.safetensors"), *place.glob("config.json")]):
            stat = file.stat()
            identity = (file, stat.st_size, stat.st_mtime_ns)
            if identity not in self._content:
                self._content[identity] = sha256(file, token)
            parts.append(self._content[identity])
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def close(self) -> None:
        """Stop the build that runs, fail those that wait, end the child process."""
        with self._lock:
            thread = self._thread
            self._life.cancel("The engine is closing.")
            self._builds.put(None)
        if thread is not None:
            thread.join()
        if self._temporary is not None:
            self._temporary.cleanup()
