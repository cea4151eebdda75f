"""The starter model's recipe, on tiny networks and made-up pictures: no package is fetched and no model trained."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine.models.description import describe
from resources import STARTER_MODEL

TINY = (8, 16)


def picture(recipe: SimpleNamespace, **fields: Any) -> Any:
    known = {"label": "red apple", "tags": ("fruit", "food", "sweet"), "style": "3d", "group": 4, "hexcode": "1F34E"}
    return recipe.pictures.Picture(**(known | fields))


def tiny_vae(recipe: SimpleNamespace, seed: int, **config: Any) -> Any:
    torch.manual_seed(seed)
    return recipe.architecture.make_vae(TINY, **config).eval()


def test_every_wording_names_the_picture_or_its_tags(recipe: SimpleNamespace) -> None:
    words = recipe.encode_texts.wordings(picture(recipe), random.Random(0))
    assert words[:3] == ["red apple", "red apple, 3d style", "a red apple icon, 3d style"]
    assert words[3].startswith("red apple, ")
    assert words[4].endswith(", 3d style")
    assert set(words[4].split(", ")[:-1]) == {"fruit", "food", "sweet"}


@pytest.mark.parametrize("tags", [(), ("fruit",)])
def test_a_picture_with_few_tags_has_as_many_wordings(recipe: SimpleNamespace, tags: tuple[str, ...]) -> None:
    words = recipe.encode_texts.wordings(picture(recipe, label="flag: red", tags=tags), random.Random(0))
    assert len(words) == recipe.train_unet.WORDINGS
    assert words[4] == "flag  red, 3d style"


def test_wordings_are_the_same_for_the_same_seed(recipe: SimpleNamespace) -> None:
    first, second = (recipe.encode_texts.wordings(picture(recipe), random.Random(7)) for _ in range(2))
    assert first == second


def test_labels_become_names_of_icons(recipe: SimpleNamespace) -> None:
    assert recipe.prepare.slug("woman’s hat") == "womans-hat"
    assert recipe.prepare.slug("Mrs. Claus") == "mrs-claus"
    assert recipe.prepare.slug("bread & butter") == "bread-and-butter"
    assert recipe.prepare.slug("piñata") == "pi-ata"


def test_broad_concepts_leave_out_people_symbols_and_clock_faces(recipe: SimpleNamespace) -> None:
    is_broad = recipe.pictures.is_broad_concept
    assert is_broad(picture(recipe))
    assert is_broad(picture(recipe, label="alarm clock", group=5))
    assert not is_broad(picture(recipe, label="chef", group=recipe.pictures.PEOPLE))
    assert not is_broad(picture(recipe, label="peace symbol", group=recipe.pictures.SYMBOLS))
    assert not is_broad(picture(recipe, label="one o’clock", group=5))
    assert not is_broad(picture(recipe, label="one-thirty", group=5))


def test_the_core_concepts_are_distinct_and_named_as_unicode_names_them(recipe: SimpleNamespace) -> None:
    concepts = recipe.pictures.core_concepts()
    lines = (Path(recipe.pictures.__file__).parent / "concepts.txt").read_text(encoding="utf-8").splitlines()
    assert len(concepts) == len(lines) == 448
    assert {"grinning face", "dog face", "red apple", "rocket"} <= concepts


def test_pictures_survive_the_work_folder(recipe: SimpleNamespace, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 128, 128, 3), np.uint8)
    pictures = [picture(recipe), picture(recipe, label="piñata", tags=())]
    recipe.pictures.save_pictures(tmp_path, images, pictures)
    assert recipe.pictures.load_pictures(tmp_path) == pictures
    assert np.array_equal(recipe.pictures.load_images(tmp_path), images)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images.npy", "pictures.json"]


def test_a_broken_write_leaves_the_old_file(recipe: SimpleNamespace, tmp_path: Path) -> None:
    def break_off(file: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    path = tmp_path / "weights.pt"
    recipe.files.write_whole(path, lambda file: file.write(b"whole"))
    with pytest.raises(OSError, match="disk full"):
        recipe.files.write_whole(path, break_off)
    assert path.read_bytes() == b"whole"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1000),
    mean=st.lists(st.floats(-5, 5), min_size=4, max_size=4),
    std=st.lists(st.floats(0.05, 20), min_size=4, max_size=4),
)
@torch.no_grad()
def test_normalising_the_vae_moves_its_latents_and_keeps_its_pictures(
    recipe: SimpleNamespace, seed: int, mean: list[float], std: list[float]
) -> None:
    plain, normalised = tiny_vae(recipe, seed), tiny_vae(recipe, seed)
    centre, spread = torch.tensor(mean), torch.tensor(std)
    recipe.export.normalise_vae(normalised, centre, spread)
    pixels = torch.rand(2, 3, 16, 16) * 2 - 1
    before, after = plain.encode(pixels).latent_dist, normalised.encode(pixels).latent_dist
    shift, scale = centre.view(1, 4, 1, 1), spread.view(1, 4, 1, 1)
    torch.testing.assert_close(after.mean, (before.mean - shift) / scale, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(after.std, before.std / scale, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(
        normalised.decode(after.mean).sample, plain.decode(before.mean).sample, rtol=1e-3, atol=1e-3
    )


@torch.no_grad()
def test_latents_over_the_pictures_are_normal_after_normalising(recipe: SimpleNamespace) -> None:
    vae = tiny_vae(recipe, 3)
    pixels = torch.rand(16, 3, 16, 16) * 2 - 1
    latents = vae.encode(pixels).latent_dist.mean
    recipe.export.normalise_vae(vae, latents.mean((0, 2, 3)), latents.std((0, 2, 3)))
    normal = vae.encode(pixels).latent_dist.mean
    torch.testing.assert_close(normal.mean((0, 2, 3)), torch.zeros(4), rtol=0, atol=1e-4)
    torch.testing.assert_close(normal.std((0, 2, 3)), torch.ones(4), rtol=0, atol=1e-4)


class Fitting:
    """A training of a small network against a fixed one, with a clock that ticks once a step."""

    def __init__(self, recipe: SimpleNamespace, folder: Path, made_from: str = "data") -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
        schedule = recipe.training.Schedule(peak=1e-2, warmup=3, floor=0.1)
        self.training = recipe.training.Training(
            self.network, schedule, weight_decay=0.01, checkpoint=folder / "fitting.checkpoint", made_from=made_from
        )
        self.target = torch.arange(6.0).view(3, 2)

    def loss(self, generator: torch.Generator) -> Tensor:
        inputs = torch.randn(16, 3, generator=generator)
        return (self.network(inputs) - inputs @ self.target).pow(2).mean()

    def run(self, steps: int, loss: Callable[[torch.Generator], Tensor] | None = None, save_every: float = 1) -> None:
        ticks = itertools.count()
        self.training.run(loss or self.loss, steps / 60, save_every=save_every, clock=lambda: float(next(ticks)))


def interrupt_after(steps: int, loss: Callable[[torch.Generator], Tensor]) -> Callable[[torch.Generator], Tensor]:
    left = iter(range(steps))

    def interrupted(generator: torch.Generator) -> Tensor:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return loss(generator)

    return interrupted


def test_training_lessens_the_loss(recipe: SimpleNamespace, tmp_path: Path) -> None:
    fitting = Fitting(recipe, tmp_path)
    before = fitting.loss(torch.Generator().manual_seed(1)).item()
    fitting.run(60)
    assert fitting.training.step == 60
    assert fitting.loss(torch.Generator().manual_seed(1)).item() < before


@pytest.mark.parametrize("save_every", [1, 4])
def test_a_broken_training_goes_on_as_if_nothing_had_happened(
    recipe: SimpleNamespace, tmp_path: Path, save_every: int
) -> None:
    whole = Fitting(recipe, tmp_path / "whole")
    whole.run(20)
    broken = Fitting(recipe, tmp_path / "broken")
    with pytest.raises(KeyboardInterrupt):
        broken.run(20, interrupt_after(10, broken.loss), save_every)
    resumed = Fitting(recipe, tmp_path / "broken")
    assert resumed.training.step == 10 // save_every * save_every
    resumed.run(20)
    assert resumed.training.step == 20
    for name, value in whole.network.state_dict().items():
        assert torch.equal(resumed.network.state_dict()[name], value)
        assert torch.equal(resumed.training.average.weights[name], whole.training.average.weights[name])


def test_a_finished_training_makes_no_further_step(recipe: SimpleNamespace, tmp_path: Path) -> None:
    Fitting(recipe, tmp_path).run(5)
    again = Fitting(recipe, tmp_path)
    again.run(5)
    assert again.training.step == 5


def test_a_checkpoint_made_from_other_data_is_passed_over(recipe: SimpleNamespace, tmp_path: Path) -> None:
    Fitting(recipe, tmp_path).run(5)
    assert Fitting(recipe, tmp_path, made_from="other data").training.step == 0


def test_a_loss_that_is_no_number_stops_the_training(recipe: SimpleNamespace, tmp_path: Path) -> None:
    fitting = Fitting(recipe, tmp_path)
    fitting.run(3)
    saved = (tmp_path / "fitting.checkpoint").read_bytes()
    with pytest.raises(FloatingPointError, match="step 3"):
        fitting.run(6, lambda generator: fitting.loss(generator) * float("nan"))
    assert (tmp_path / "fitting.checkpoint").read_bytes() == saved


def test_the_learning_rate_warms_up_and_falls(recipe: SimpleNamespace) -> None:
    schedule = recipe.training.Schedule(peak=1.0, warmup=4, floor=0.1)
    assert [schedule.rate(step, 0) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert schedule.rate(9, 0.5) == pytest.approx(0.55)
    assert schedule.rate(9, 1) == schedule.rate(9, 1.7) == pytest.approx(0.1)


def test_the_decoder_learns_from_latents_over_their_own_pixels(recipe: SimpleNamespace) -> None:
    count, side, factor = 3, recipe.architecture.LATENT_SIDE, recipe.architecture.VAE_FACTOR
    values = torch.arange(count * side * side).view(count, 1, side, side)
    latents = values.expand(-1, 4, -1, -1).float()
    blocks = values[:, 0].repeat_interleave(factor, 1).repeat_interleave(factor, 2).unsqueeze(-1)
    images = torch.cat([blocks // 65536, blocks // 256 % 256, blocks % 256], dim=-1).to(torch.uint8).numpy()
    generator = torch.Generator().manual_seed(0)
    shapes = set()
    for _ in range(12):
        chosen, pixels = recipe.train_decoder.random_pairs(latents, images, generator)
        red, green, blue = ((pixels + 1) * 127.5).round().unbind(1)
        coded = (red * 65536 + green * 256 + blue)[:, ::factor, ::factor]
        assert torch.equal(coded, chosen[:, 0])
        shapes.add(tuple(chosen.shape[2:]))
    assert shapes == {(8, 8), (16, 16)}


def test_one_prompt_in_ten_is_empty_and_the_others_belong_to_their_picture(recipe: SimpleNamespace) -> None:
    wordings = recipe.train_unet.WORDINGS
    latents = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 4, 2, 2)
    states = np.repeat(np.arange(6, dtype=np.float16), wordings)[: 6 * wordings]
    states = np.append(states, np.float16(-1)).reshape(-1, 1, 1)
    examples = recipe.train_unet.Examples(latents, [1, 2, 4, 5], states)
    generator = torch.Generator().manual_seed(0)
    empty = total = 0
    for _ in range(100):
        clean, text = examples.draw(generator)
        rows = torch.tensor([1.0, 2.0, 4.0, 5.0])[clean[:, 0, 0, 0].long()]
        is_empty = text[:, 0, 0] == -1
        assert torch.equal(text[~is_empty, 0, 0], rows[~is_empty])
        empty, total = empty + int(is_empty.sum()), total + len(text)
    assert 0.08 < empty / total < 0.12


def test_a_perfect_velocity_has_no_loss(recipe: SimpleNamespace) -> None:
    """With one clean latent known to the model, the noise and so the velocity follow from the noisy one."""
    clean = torch.randn(8, 4, 4, 4, generator=torch.Generator().manual_seed(1))
    alphas = recipe.architecture.make_noise_schedule().alphas_cumprod

    def knowing(noisy: Tensor, timesteps: Tensor, text: Tensor, return_dict: bool) -> tuple[Tensor]:
        alpha = alphas[timesteps].view(-1, 1, 1, 1)
        noise = (noisy - alpha.sqrt() * clean) / (1 - alpha).sqrt()
        return (alpha.sqrt() * noise - (1 - alpha).sqrt() * clean,)

    generator = torch.Generator().manual_seed(0)
    loss = recipe.train_unet.v_prediction_loss(knowing, clean, torch.zeros(8, 1, 1), alphas, generator)
    assert loss.item() < 1e-6


def tiny_text_encoder(recipe: SimpleNamespace) -> tuple[Any, Any]:
    from transformers import AutoTokenizer, BertConfig, BertModel

    tokenizer = AutoTokenizer.from_pretrained(STARTER_MODEL / "tokenizer", local_files_only=True)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.architecture.TEXT_WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=recipe.architecture.TEXT_LENGTH,
    )
    return BertModel(config, add_pooling_layer=False), tokenizer


def test_the_exported_folder_is_a_model_with_the_starters_settings(recipe: SimpleNamespace, tmp_path: Path) -> None:
    folder = tmp_path / "starter"
    folder.mkdir()
    (folder / "left over").touch()
    unet = recipe.architecture.make_unet((16, 16, 16))
    recipe.export.save_folder(folder, tiny_vae(recipe, 0, scaling_factor=1.0), unet, *tiny_text_encoder(recipe))
    recipe.fit_preview.write_factors(folder, torch.full((4, 3), 0.25), torch.zeros(3))
    described = describe(str(folder))
    assert (described.name, described.prediction, described.text_length) == ("Starter", "v_prediction", 32)
    assert (described.defaults.steps, described.defaults.guidance_scale) == (30, 4.0)
    assert described.latent_rgb is not None
    assert described.latent_rgb.factors == ((0.25, 0.25, 0.25),) * 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["starter"]
    assert not (folder / "left over").exists()
    for name in recipe.build.MODEL_FILES:
        assert (folder / name).is_file()
    shipped = json.loads((STARTER_MODEL / "scheduler" / "scheduler_config.json").read_text(encoding="utf-8"))
    assert json.loads((folder / "scheduler" / "scheduler_config.json").read_text(encoding="utf-8")) == shipped


def test_the_shipped_starter_has_the_recipes_networks_and_settings(recipe: SimpleNamespace) -> None:
    for network, part in ((recipe.architecture.make_unet(), "unet"), (recipe.architecture.make_vae(), "vae")):
        shipped = json.loads((STARTER_MODEL / part / "config.json").read_text(encoding="utf-8"))
        asked = {key: value for key, value in network.config.items() if not key.startswith("_")}
        asked |= {"scaling_factor": 1.0} if part == "vae" else {}
        assert json.loads(json.dumps(asked)) == {key: shipped[key] for key in asked}
    settings_ = recipe.settings_file.read_settings(STARTER_MODEL)
    settings_.pop("latent_rgb")
    assert settings_ == recipe.settings_file.STARTER


def test_preview_factors_are_found_again(recipe: SimpleNamespace) -> None:
    generator = torch.Generator().manual_seed(0)
    latents = torch.randn(500, 4, generator=generator)
    factors, bias = torch.randn(4, 3, generator=generator), torch.randn(3, generator=generator)
    colours = latents @ factors + bias
    found_factors, found_bias = recipe.fit_preview.fit(latents, colours)
    torch.testing.assert_close(found_factors, factors, rtol=0, atol=1e-4)
    torch.testing.assert_close(found_bias, bias, rtol=0, atol=1e-4)
    assert recipe.fit_preview.explained(latents, colours, found_factors, found_bias) == pytest.approx(1)
    noise = colours.std() * torch.randn(colours.shape, generator=generator)
    assert recipe.fit_preview.explained(latents, colours + noise, factors, bias) < 0.7


def test_writing_preview_factors_keeps_everything_else_as_it_was(recipe: SimpleNamespace, tmp_path: Path) -> None:
    shutil.copyfile(STARTER_MODEL / "safelight.json", tmp_path / "safelight.json")
    factors = describe("starter").latent_rgb
    assert factors is not None
    recipe.fit_preview.write_factors(tmp_path, torch.tensor(factors.factors), torch.tensor(factors.bias))
    assert (tmp_path / "safelight.json").read_bytes() == (STARTER_MODEL / "safelight.json").read_bytes()


def copying_stage(recipe: SimpleNamespace, work: Path, times: str = "1") -> Any:
    code = "import sys; from pathlib import Path; Path('out').write_text(Path('in').read_text() * int(sys.argv[1]))"
    command = (sys.executable, "-c", code, times)
    return recipe.stages.Stage("copying", command, reads=(work / "in",), writes=(work / "out",))


def test_a_complete_stage_is_skipped_until_its_input_or_its_options_change(
    recipe: SimpleNamespace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("a")
    stage = copying_stage(recipe, tmp_path)
    assert not stage.is_complete(tmp_path)
    recipe.stages.run_stages([stage], tmp_path)
    assert stage.is_complete(tmp_path)
    recipe.stages.run_stages([stage], tmp_path)
    assert "copying is complete" in capfd.readouterr().err
    assert not copying_stage(recipe, tmp_path, times="2").is_complete(tmp_path)
    (tmp_path / "in").write_text("b")
    assert not stage.is_complete(tmp_path)
    recipe.stages.run_stages([stage], tmp_path)
    assert (tmp_path / "out").read_text() == "b"
    (tmp_path / "out").unlink()
    assert not stage.is_complete(tmp_path)


def test_a_failed_stage_is_not_complete_and_stops_the_recipe(recipe: SimpleNamespace, tmp_path: Path) -> None:
    failing = recipe.stages.Stage("failing", (sys.executable, "-c", "raise SystemExit(3)"))
    never = recipe.stages.Stage("never", (sys.executable, "-c", "open('out', 'w')"))
    with pytest.raises(recipe.stages.StageFailed, match="failing failed with exit status 3"):
        recipe.stages.run_stages([failing, never], tmp_path)
    assert not failing.is_complete(tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_stage_that_leaves_nothing_behind_has_failed(recipe: SimpleNamespace, tmp_path: Path) -> None:
    empty = recipe.stages.Stage("empty", (sys.executable, "-c", ""), writes=(tmp_path / "promised",))
    with pytest.raises(recipe.stages.StageFailed, match="did not write"):
        empty.run(tmp_path)


def test_every_stage_reads_what_an_earlier_one_writes(recipe: SimpleNamespace, tmp_path: Path) -> None:
    arguments = recipe.build.parse(["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")])
    arguments.work.mkdir()
    there: set[Path] = set()
    for stage in [*recipe.build.package_stages(arguments.work), *recipe.build.model_stages(arguments)]:
        missing = [path for path in stage.reads if path not in there and not path.exists()]
        assert not missing, stage.name
        there.update(stage.writes)
    assert arguments.out / "unet" / "diffusion_pytorch_model.safetensors" in there


def test_publishing_replaces_the_old_model_as_a_whole(recipe: SimpleNamespace, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "models" / "starter"
    for folder, name in ((model, "new"), (out, "old")):
        folder.mkdir(parents=True)
        (folder / name).touch()
    recipe.publish.publish(model, out)
    assert [path.name for path in out.iterdir()] == ["new"]
    assert [path.name for path in out.parent.iterdir()] == ["starter"]
