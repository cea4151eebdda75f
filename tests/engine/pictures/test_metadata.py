"""What a picture file says, it gives back; and what a hostile file says does no harm."""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from engine.errors import PictureUnreadable
from engine.events import MadeWith, RgbImage
from engine.pictures.metadata import encode_png, parameters_text, read_settings
from engine.request import MAX_SEED, Backend, GenerationRequest, LoraUse, Sampler

IMAGE = RgbImage(width=3, height=2, pixels=bytes(range(18)))
MADE_WITH = MadeWith(plan="openvino-static", batch=2, vae_tiling=True, safelight="0.1.0", torch="2.13.0")
SIGNATURE = b"\x89PNG\r\n\x1a\n"

texts = st.text(max_size=200)
requests = st.builds(
    GenerationRequest,
    prompt=texts,
    negative_prompt=texts,
    width=st.integers(32, 4096),
    height=st.integers(32, 4096),
    steps=st.integers(1, 150),
    guidance_scale=st.floats(1, 30),
    sampler=st.sampled_from(Sampler),
    seed=st.integers(0, MAX_SEED),
    model=texts,
    backend=st.sampled_from(Backend),
    loras=st.lists(st.builds(LoraUse, file=texts.filter(bool), strength=st.floats(-10, 10)), max_size=3).map(tuple),
)
made_withs = st.builds(MadeWith, plan=texts, batch=st.integers(1, 64), safelight=texts, torch=texts)
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(*chunks: bytes, width: int = 1, height: int = 1) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return SIGNATURE + head + b"".join(chunks) + chunk(b"IDAT", zlib.compress(b"\0\0\0\0")) + chunk(b"IEND", b"")


def block(**changes: object) -> bytes:
    whole = {"version": 1, "request": {"prompt": "a red apple"}, "made_with": {"plan": "eager", "batch": 2}}
    return b"safelight\0\0\0\0\0" + json.dumps(whole | changes).encode()


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@in_one_folder
@given(request=requests, made_with=made_withs)
def test_reading_back_gives_the_identical_request(
    tmp_path: Path, request: GenerationRequest, made_with: MadeWith
) -> None:
    path = written(tmp_path / "picture.png", encode_png(IMAGE, request, made_with))
    assert read_settings(path) == (request, made_with)


def test_the_pixels_are_the_pictures() -> None:
    with Image.open(io.BytesIO(encode_png(IMAGE, GenerationRequest(), MADE_WITH))) as image:
        assert (image.mode, image.size, image.tobytes()) == ("RGB", (3, 2), IMAGE.pixels)


def test_pixels_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="17 bytes"):
        encode_png(RgbImage(width=3, height=2, pixels=bytes(17)), GenerationRequest(), MADE_WITH)


def test_other_tools_find_the_parameters_text() -> None:
    request = GenerationRequest(
        prompt="a red apple,\n3d style – 日本",
        negative_prompt="blurry",
        sampler=Sampler.EULER_A,
        seed=7,
    )
    with Image.open(io.BytesIO(encode_png(IMAGE, request, MADE_WITH))) as image:
        assert isinstance(image, PngImagePlugin.PngImageFile)
        assert image.text["parameters"] == (
            "a red apple,\n3d style – 日本\n"
            "Negative prompt: blurry\n"
            "Steps: 30, Sampler: Euler a, CFG scale: 4, Seed: 7, Size: 128x128, Model: starter, "
            "Version: Safelight 0.1.0"
        )


def test_values_with_commas_and_colons_are_quoted() -> None:
    text = parameters_text(GenerationRequest(model="/models/mine, v1: best"), MADE_WITH)
    assert 'Model: "mine, v1: best"' in text


one_line = st.text(alphabet=st.characters(categories=["L", "N", "P", "Zs"]), min_size=1).map(str.strip)


@in_one_folder
@given(
    request=st.builds(
        GenerationRequest,
        prompt=one_line,
        negative_prompt=one_line,
        sampler=st.sampled_from(Sampler),
        width=st.integers(32, 4096),
        height=st.integers(32, 4096),
        steps=st.integers(1, 150),
        guidance_scale=st.floats(1, 30),
        seed=st.integers(0, MAX_SEED),
    )
)
def test_the_parameters_text_alone_gives_what_it_can_say(tmp_path: Path, request: GenerationRequest) -> None:
    text = parameters_text(request, MADE_WITH)
    path = written(tmp_path / "picture.png", png(chunk(b"iTXt", b"parameters\0\0\0\0\0" + text.encode())))
    found, made_with = read_settings(path)
    assert found.model_copy(update={"guidance_scale": request.guidance_scale}) == request
    assert found.guidance_scale == pytest.approx(request.guidance_scale)
    assert made_with.plan == "unknown"


def test_a_picture_of_another_program_gives_the_fields_that_are_known(tmp_path: Path) -> None:
    text = (
        "a castle\non a hill\nNegative prompt: fog\nrain\n"
        "Steps: 999, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 7, Seed: 42, Size: 512x768, "
        'Model hash: "a, b", Clip skip: 2'
    )
    path = written(tmp_path / "picture.png", png(chunk(b"tEXt", b"parameters\0" + text.encode())))
    assert read_settings(path)[0] == GenerationRequest(
        prompt="a castle\non a hill",
        negative_prompt="fog\nrain",
        sampler=Sampler.DPMPP_2M_KARRAS,
        guidance_scale=7,
        seed=42,
        width=512,
        height=768,
    )


@pytest.mark.parametrize("kind", [b"tEXt", b"zTXt", b"iTXt"])
def test_every_kind_of_text_is_read_also_after_the_pixels(tmp_path: Path, kind: bytes) -> None:
    text = b"a cat\nSteps: 3"
    bodies = {
        b"tEXt": b"parameters\0" + text,
        b"zTXt": b"parameters\0\0" + zlib.compress(text),
        b"iTXt": b"parameters\0\1\0en\0Parameter\0" + zlib.compress(text),
    }
    whole = png()
    end = len(whole) - 12
    path = written(tmp_path / "picture.png", whole[:end] + chunk(kind, bodies[kind]) + whole[end:])
    assert read_settings(path)[0] == GenerationRequest(prompt="a cat", steps=3)


REFUSED = {
    "not a picture": b"GIF89a" + bytes(100),
    "empty": b"",
    "nothing but a signature": SIGNATURE,
    "no header": SIGNATURE + chunk(b"IEND", b""),
    "no settings": png(),
    "a text without fields": png(chunk(b"tEXt", b"parameters\0hello")),
    "truncated within a text": png(chunk(b"iTXt", block()))[:60],
    "a chunk longer than the file": png()[:33] + struct.pack(">I", 2**31 - 1) + b"tEXt",
    "a chunk of a negative length": png()[:33] + struct.pack(">I", 2**32 - 1) + b"tEXtabc",
    "another version": png(chunk(b"iTXt", block(version=2))),
    "a request out of range": png(chunk(b"iTXt", block(request={"steps": 10**30}))),
    "an infinite number": png(
        chunk(b"iTXt", b'safelight\0\0\0\0\0{"version": 1, "request": {"guidance_scale": 1e999}}')
    ),
    "unknown fields": png(chunk(b"iTXt", block(request={"run": "rm -r"}))),
    "no JSON": png(chunk(b"tEXt", b"safelight\0{")),
    "another JSON": png(chunk(b"tEXt", b"safelight\0[1]")),
    "deep JSON": png(chunk(b"tEXt", b"safelight\0" + b"[" * 500_000)),
    "broken UTF-8": png(chunk(b"iTXt", block().replace(b"red", b"\xff\xfe\xfd"))),
    "an unknown compression": png(chunk(b"zTXt", b"parameters\0\7abc")),
    "a packed text that bursts": png(chunk(b"zTXt", b"parameters\0\0" + zlib.compress(bytes(10**8)))),
    "a packed text cut short": png(chunk(b"zTXt", b"parameters\0\0" + zlib.compress(b"Steps: 3" * 99)[:-9])),
    "a wrong checksum": png(chunk(b"tEXt", b"parameters\0Steps: 3")[:-1] + b"\0"),
    "endless parts": SIGNATURE + png()[8:33] + chunk(b"tEXt", b"") * 100_001,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_a_file_that_is_no_use_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(PictureUnreadable, match=r"picture\.png .*\.$") as refusal:
        read_settings(written(tmp_path / "picture.png", data))
    assert len(str(refusal.value)) < 400


def test_settings_before_the_damage_are_still_read(tmp_path: Path) -> None:
    whole = png(chunk(b"iTXt", block()))
    assert read_settings(written(tmp_path / "picture.png", whole[:-20]))[0].prompt == "a red apple"


def test_a_decompression_bomb_is_never_unpacked(tmp_path: Path) -> None:
    data = png(chunk(b"iTXt", block()), width=2**31 - 1, height=2**31 - 1)
    assert read_settings(written(tmp_path / "picture.png", data))[0].prompt == "a red apple"


def test_a_text_of_100_megabytes_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    head, length = png()[:33], 100_000_000
    with path.open("wb") as file:
        file.write(head + struct.pack(">I", length) + b"tEXtparameters\0")
        file.seek(len(head) + 8 + length + 4)  # sparse: the text is zeros
        file.write(png(chunk(b"iTXt", block()))[33:])
    tracemalloc.start()
    try:
        assert read_settings(path)[0].prompt == "a red apple"
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_what_isnt_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PictureUnreadable, match="doesn't exist"):
        read_settings(tmp_path / "none.png")
    with pytest.raises(PictureUnreadable, match=r"isn't a file|can't be read"):
        read_settings(tmp_path)
    with pytest.raises(PictureUnreadable, match="can't be read"):
        read_settings(Path("a\0b.png"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(PictureUnreadable, match="isn't a file"):
        read_settings(tmp_path / "pipe.png")


chunks = st.builds(
    chunk,
    st.sampled_from([b"tEXt", b"zTXt", b"iTXt", b"IDAT", b"IEND", b"eXIf"]),
    st.binary(max_size=60) | st.builds(bytes.__add__, st.sampled_from([b"safelight\0", b"parameters\0"]), st.binary()),
)


@in_one_folder
@given(data=st.binary(max_size=300) | st.lists(chunks, max_size=5).map(lambda found: png(*found)))
def test_no_bytes_raise_anything_but_the_refusal(tmp_path: Path, data: bytes) -> None:
    with contextlib.suppress(PictureUnreadable):
        read_settings(written(tmp_path / "picture.png", data))


@in_one_folder
@given(damage=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), min_size=1, max_size=4), cut=st.integers(0))
def test_no_damage_raises_anything_but_the_refusal(tmp_path: Path, damage: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(encode_png(IMAGE, GenerationRequest(prompt="a red apple"), MADE_WITH))
    for at, value in damage:
        data[at % len(data)] = value
    with contextlib.suppress(PictureUnreadable):
        read_settings(written(tmp_path / "picture.png", bytes(data[: max(1, len(data) - cut)])))


@in_one_folder
@given(text=st.text(max_size=500).map("a cat\nSteps: 3, ".__add__))
def test_no_parameters_text_raises_anything_but_the_refusal(tmp_path: Path, text: str) -> None:
    body = b"parameters\0\0\0\0\0" + text.encode()
    with contextlib.suppress(PictureUnreadable):
        read_settings(written(tmp_path / "picture.png", png(chunk(b"iTXt", body))))


def test_loras_stand_in_the_parameters_text_as_other_programs_name_them() -> None:
    loras = (LoraUse(file="/loras/clay v2.safetensors", strength=0.8), LoraUse(file="night.safetensors", strength=-1))
    text = parameters_text(GenerationRequest(prompt="a dog", loras=loras), MADE_WITH)
    assert text.split("\n")[0] == "a dog <lora:clay v2:0.8> <lora:night:-1>"
