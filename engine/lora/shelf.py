"""The LoRAs that a loaded model's pictures name: read once, fitted to the model, stacked for each picture."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from engine.cancellation import CancellationToken
from engine.lora.adapters import NO_ADAPTERS, Adapters, PartAdapters
from engine.lora.layout import AdapterLayout
from engine.lora.lora_file import PARTS, LoraFile
from engine.lora.match import match
from engine.lora.read import read_lora
from engine.lora.stack import LoraStack
from engine.plans.eager import EagerStream
from engine.request import LoraUse

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT = 8  # files beyond those of the last picture; some hundred megabytes each at most

_Identity = tuple[str, int, int]  # path, size, time of the last change in ns


class LoraShelf:
    """Keeps the files used last, and the layout that each part ran with last.

    That layout is used again for whatever fits it, so that another LoRA in the place of one needs no new plan. Belongs
    to the engine thread; files are read and tensors made on the eager stream.
    """

    def __init__(self, modules: Mapping[str, Any], model: str, device: str, stream: EagerStream) -> None:
        """`modules` are the model's by part, on `device`; `model` is its name, for refusals."""
        self._modules = {part: modules[part] for part in PARTS if part in modules}
        self._model, self._device = model, device
        self._stream = stream
        self._files: OrderedDict[_Identity, LoraFile] = OrderedDict()
        self._stack = LoraStack()
        self._layouts: dict[str, AdapterLayout] = {}

    async def adapters(self, loras: Sequence[LoraUse], token: CancellationToken) -> Adapters:
        """The further inputs of a picture with these LoRAs. A file that has changed is read again.

        Raises `ModelRefused`, naming the file, for what isn't a LoRA or is one for another model, and
        `OperationCancelled`.
        """
        if not loras:
            return NO_ADAPTERS
        return await self._stream.run_async(lambda: self._made(loras, token), token)

    def _made(self, loras: Sequence[LoraUse], token: CancellationToken) -> Adapters:
        identities = [self._read(Path(use.file), token) for use in loras]
        strengths = [use.strength for use in loras]
        files = [self._files[identity] for identity in identities]
        self._stack = self._stack.with_entries(list(zip(files, strengths, strict=True)))
        for identity in identities:
            self._files.move_to_end(identity)
        while len(self._files) > len(set(identities)) + KEPT:
            self._files.popitem(last=False)
        parts: dict[str, PartAdapters] = {}
        for part, module in self._modules.items():
            token.raise_if_cancelled()
            layout = self._stack.layout_for(part, module, self._layouts.get(part))
            if layout is None:
                continue
            self._layouts[part] = layout
            # outside inference mode, where torch counts changes: a plan's process keeps what it knows to be unchanged
            with torch.inference_mode(False):
                inputs = tuple(x.to(self._device) for x in self._stack.adapter_tensors(part, module, layout))
            used = zip(identities, files, strengths, strict=True)
            origin = layout, tuple((identity, strength) for identity, file, strength in used if file.part(part))
            parts[part] = PartAdapters(layout, inputs, origin)
        return Adapters(parts)

    def _read(self, path: Path, token: CancellationToken) -> _Identity:
        try:
            stat = path.stat()
            identity = str(path), stat.st_size, stat.st_mtime_ns
        except (OSError, ValueError):
            identity = str(path), -1, -1  # reading it says why
        if identity not in self._files:
            with torch.inference_mode(False):
                self._files[identity] = match(read_lora(path, token), self._modules, self._model)
        return identity
