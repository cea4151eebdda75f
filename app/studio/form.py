"""The form's values: what the next picture will be made from."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.observable import Observable
from app.settings.remembered import RememberedForm
from engine.models.description import ModelDescription
from engine.request import MAX_LORAS, MAX_SEED, Backend, GenerationRequest, LoraUse, Sampler

MAX_COUNT = 64
SEEDS = MAX_SEED + 1


def new_seed() -> int:
    return secrets.randbelow(SEEDS)


class Form(QObject):
    """Observable values within what the model can do.

    With `random_seed` on, `seed` is the one shown: the last that was used, or, not used yet, the one the next run will
    use. Turning it off therefore keeps the last picture's seed. `width_note` and `height_note` say in words how a side
    was rounded.
    """

    prompt = Observable("")
    prompt_changed = Signal(str)
    negative_prompt = Observable("")
    negative_prompt_changed = Signal(str)
    width = Observable(0)
    width_changed = Signal(int)
    height = Observable(0)
    height_changed = Signal(int)
    steps = Observable(0)
    steps_changed = Signal(int)
    guidance_scale = Observable(0.0)
    guidance_scale_changed = Signal(float)
    sampler = Observable(Sampler.DDIM)
    sampler_changed = Signal(object)
    seed = Observable(0)
    seed_changed = Signal(object)
    random_seed = Observable(True)
    random_seed_changed = Signal(bool)
    count = Observable(1)
    count_changed = Signal(int)
    backend = Observable(Backend.AUTO)
    backend_changed = Signal(object)
    loras: Observable[tuple[LoraUse, ...]] = Observable(())
    loras_changed = Signal(object)
    width_note = Observable("")
    width_note_changed = Signal(str)
    height_note = Observable("")
    height_note_changed = Signal(str)

    def __init__(
        self,
        description: ModelDescription,
        draw_seed: Callable[[], int] = new_seed,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.description = description
        self._draw_seed = draw_seed
        self._seed_used = False
        self._take(description.defaults)
        self.seed = draw_seed()

    def remember(self) -> RememberedForm:
        return RememberedForm(request=self.request(), random_seed=self.random_seed, count=self.count)

    def recall(self, remembered: RememberedForm) -> None:
        """Take remembered values, as far as this model can use them."""
        if remembered.request is not None:
            self._take(remembered.request)
            if not remembered.random_seed:
                self.seed = remembered.request.seed
        self.random_seed = remembered.random_seed
        self.count = remembered.count

    def restore(self, request: GenerationRequest) -> None:
        """Take a picture's settings, its seed fixed, so that the next run makes the same picture."""
        self._take(request)
        self.seed = request.seed
        self._seed_used = True
        self.random_seed = False
        self.count = 1

    def request(self) -> GenerationRequest:
        return GenerationRequest(
            prompt=self.prompt,
            negative_prompt=self.negative_prompt,
            width=self.width,
            height=self.height,
            steps=self.steps,
            guidance_scale=self.guidance_scale,
            sampler=self.sampler,
            seed=self.seed,
            model=self.description.defaults.model,
            backend=self.backend,
            loras=self.loras,
        )

    def take_requests(self) -> list[GenerationRequest]:
        """The next run's requests, with seeds seed, seed+1, … A random seed that was used is drawn anew first."""
        if self.random_seed and self._seed_used:
            self.seed = self._draw_seed()
        self._seed_used = True
        first = self.request()
        return [first.model_copy(update={"seed": (first.seed + at) % SEEDS}) for at in range(self.count)]

    def draw_new_seed(self) -> None:
        """Another seed for the next run, whether seeds are random or fixed."""
        self.seed = self._draw_seed()
        self._seed_used = False

    def fix_seed(self, seed: float) -> None:
        """Use a seed that was typed."""
        self.seed = int(min(max(seed, 0), MAX_SEED))
        self.random_seed = False

    def set_size(self, width: float, height: float) -> None:
        """Sides as asked for; taken as the nearest that the model can make, and said so."""
        (self.width, self.width_note), (self.height, self.height_note) = map(self._nearest, (width, height))

    def _nearest(self, side: float) -> tuple[int, str]:
        """The nearest side that the model can make, and words where that isn't the one asked for."""
        asked = round(side)
        nearest = self.description.nearest_side(asked)
        if asked == nearest:
            return nearest, ""
        multiple = self.description.size_multiple
        if nearest == self.largest_side and asked > nearest:
            why = self.tr("the largest")
        elif asked < nearest and asked <= nearest - multiple:
            why = self.tr("the smallest")
        else:
            why = self.tr("a multiple of {multiple}").format(multiple=multiple)
        return nearest, f"{asked} → {nearest}, {why}"

    def swap_sides(self) -> None:
        self.set_size(self.height, self.width)

    @property
    def largest_side(self) -> int:
        return self.description.nearest_side(self.description.max_side)

    def use_sampler(self, sampler: Sampler) -> None:
        """Take a sampler; one that the model can't use is left alone."""
        if self.description.why_unusable(sampler) is None:
            self.sampler = sampler

    def add_lora(self, file: Path) -> None:
        """Take a LoRA at strength 1, after those that are there; one that is there already stays as it is."""
        name = str(file)
        if len(self.loras) < MAX_LORAS and name not in [use.file for use in self.loras]:
            self.loras = (*self.loras, LoraUse(file=name))

    def set_lora_strength(self, at: int, strength: float) -> None:
        uses = list(self.loras)
        uses[at] = uses[at].model_copy(update={"strength": strength})
        self.loras = tuple(uses)

    def remove_lora(self, at: int) -> None:
        self.loras = self.loras[:at] + self.loras[at + 1 :]

    def _take(self, request: GenerationRequest) -> None:
        self.prompt = request.prompt
        self.negative_prompt = request.negative_prompt
        self.set_size(request.width, request.height)
        self.steps = request.steps
        self.guidance_scale = request.guidance_scale
        self.use_sampler(request.sampler)
        self.backend = request.backend
        self.loras = request.loras
