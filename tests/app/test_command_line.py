"""`safelight` and `safelight generate`, as a person at a terminal meets them."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from app import __version__
from app.command_line import BAD_USAGE, FAILED, INTERRUPTED, OK, main, parser
from app.generate_command import UsageError, _hand_over, _interrupts, requests_from
from engine.engine import Engine
from engine.errors import SafelightError
from engine.events import Finished, MadeWith, RgbImage
from engine.models.description import describe
from engine.pictures.files import save_picture
from engine.pictures.metadata import read_settings
from engine.request import Backend, GenerationRequest, LoraUse, Sampler, Weights

SAFELIGHT = [sys.executable, "-m", "app"]
MADE_WITH = MadeWith(plan="eager", batch=2)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"SAFELIGHT_HOME": str(tmp_path / "home")}


def safelight(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SAFELIGHT, *arguments], env=env, capture_output=True, text=True, check=False)


def requests(*arguments: str) -> list[GenerationRequest]:
    return requests_from(parser().parse_args(["generate", *arguments]))


# Help


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["generate", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str], environment: dict[str, str]) -> None:
    program = [sys.executable, "-X", "importtime", "-m", "app", *arguments]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in ended.stderr.splitlines()}
    assert "argparse" in imported
    assert not imported & {"torch", "PySide6", "qasync", "pydantic", "numpy", "PIL", "diffusers", "openvino", "engine"}


def test_the_version_is_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == OK
    assert capsys.readouterr().out == f"Safelight {__version__}\n"


def test_help_lists_every_sampler() -> None:
    help_text = " ".join(_generate_help().split())
    listed = re.search(r"one of (.+?);", help_text)
    assert listed is not None
    assert listed[1].split(", ") == list(Sampler)


def _generate_help() -> str:
    commands = next(action.choices for action in parser()._actions if action.dest == "command")
    assert isinstance(commands, dict)
    return str(commands["generate"].format_help())


# Options and requests


def test_what_isnt_said_is_the_models_default() -> None:
    (request,) = requests("a red apple", "--seed", "7")
    assert request == describe("starter").defaults.model_copy(update={"prompt": "a red apple", "seed": 7})


def test_every_option_reaches_the_request() -> None:
    options = "--negative blurry --seed 1 --steps 5 --guidance 2.5 --size 64x96 --sampler heun --backend eager"
    (request,) = requests("apple", *options.split())
    assert request == GenerationRequest(
        prompt="apple",
        negative_prompt="blurry",
        seed=1,
        steps=5,
        guidance_scale=2.5,
        width=64,
        height=96,
        sampler=Sampler.HEUN,
        backend=Backend.EAGER,
    )


def test_control_characters_of_a_prompt_are_left_out() -> None:
    (request,) = requests("a\x1b[31m red\x07 apple\r\non a table", "--negative", "\x00fog")
    assert (request.prompt, request.negative_prompt) == ("a[31m red apple\non a table", "fog")


def test_several_pictures_count_the_seed_up_and_around() -> None:
    assert [request.seed for request in requests("a", "--seed", "4294967294", "--count", "3")] == [
        4294967294,
        4294967295,
        0,
    ]


def test_a_seed_that_isnt_given_is_a_new_one_each_time() -> None:
    assert len({requests("a")[0].seed for _ in range(5)}) > 1


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        *((sampler.value, sampler) for sampler in Sampler),
        *((sampler.value.lower().replace(" ", "-"), sampler) for sampler in Sampler),
        ("EULER_A", Sampler.EULER_A),
        ("dpmpp-2m", Sampler.DPMPP_2M),
        ("dpm++ 2m karras", Sampler.DPMPP_2M_KARRAS),
        ("dpmpp_2m_karras", Sampler.DPMPP_2M_KARRAS),
    ],
)
def test_samplers_go_by_many_spellings(name: str, sampler: Sampler) -> None:
    assert requests("a", "--sampler", name)[0].sampler is sampler


def test_loras_are_files_with_or_without_a_strength(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("clay.safetensors", "odd:1.safetensors", "odd:2"):
        Path(name).touch()
    made = requests("a", "--lora", "clay.safetensors:-.5", "--lora", "odd:1.safetensors", "--lora", "odd:2")[0].loras
    names = [str(tmp_path / name) for name in ("clay.safetensors", "odd:1.safetensors", "odd:2")]
    assert [(use.file, use.strength) for use in made] == list(zip(names, (-0.5, 1, 1), strict=True))


def test_loras_take_the_place_of_the_pictures_own(tmp_path: Path) -> None:
    lora, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    other.touch()
    request = GenerationRequest(prompt="a cat", loras=(LoraUse(file=str(lora), strength=0.5),))
    path = save_picture(RgbImage(width=1, height=1, pixels=bytes(3)), request, MADE_WITH, tmp_path)
    assert requests("--like", str(path))[0].loras == request.loras
    assert requests("--like", str(path), "--lora", str(other))[0].loras == (LoraUse(file=str(other)),)


def test_like_takes_every_setting_from_a_picture(tmp_path: Path) -> None:
    request = GenerationRequest(prompt="a cat", negative_prompt="fog", seed=3, steps=9, sampler=Sampler.LCM, width=64)
    image = RgbImage(width=1, height=1, pixels=bytes(3))
    path = save_picture(image, request, MADE_WITH, tmp_path)
    assert requests("--like", str(path)) == [request]
    changed = request.model_copy(update={"prompt": "a dog", "steps": 4})
    assert requests("a dog", "--like", str(path), "--steps", "4") == [changed]


def test_a_model_folder_is_named_by_its_whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = describe("starter").folder
    monkeypatch.chdir(folder.parent)
    assert requests("a", "--model", "starter/.")[0].model == str(folder)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "A prompt is missing"),
        (["a", "--size", "100x128"], "The nearest size is"),
        (["a", "--width", "4000"], "The nearest size is 512×128"),
        (["a", "--width", "5000"], "--width is 5000; it must be from 32 to 4,096"),
        (["a", "--steps", "0"], "--steps is 0; it must be from 1 to 150"),
        (["a", "--guidance", "0.5"], "--guidance is 0.5; it must be from 1 to 30"),
        (["a", "--seed", "-1"], "--seed is -1; it must be from 0 to 4,294,967,295"),
        (["a", "--count", "0"], "--count is 0"),
        (["a" * 20_001], "PROMPT is longer than 20,000 characters"),
        (["a\udcff"], "PROMPT isn't valid text"),
        (["a", "--width", "0"], "--width is 0; it must be from 32 to 4,096"),
        (["a", "--size", "128x128", "--height", "64"], "--size says both sides"),
        (["a", "--guidance", "nan"], "--guidance is nan; it must be from 1 to 30"),
        (["a", "--sampler", "best"], "There is no sampler 'best'. There are Euler, Euler a"),
        (["a", "--model", "/nowhere"], "/nowhere doesn't exist"),
        (["--like", "/nowhere.png"], "/nowhere.png doesn't exist"),
        (["a", "--lora", "/nowhere.safetensors:0.5"], "/nowhere.safetensors isn't a file"),
        (["a", "--lora", f"{__file__}:11"], "the strength must be from -10 to 10"),
        (["a", "--lora", f"{__file__}:nan"], "the strength must be from -10 to 10"),
    ],
)
def test_what_cant_be_done_is_refused_with_a_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises((UsageError, SafelightError), match=re.escape(sentence)) as refusal:
        requests(*arguments)
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "a", "--steps", "many"],
        ["generate", "a", "--size", "big"],
        ["generate", "a", "--backend", "abacus"],
        ["generate", "a", "--colour", "red"],
        ["paint", "a"],
    ],
)
def test_what_cant_be_parsed_is_bad_usage_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == BAD_USAGE
    complaint = capsys.readouterr().err
    assert len(complaint.splitlines()) == 1
    assert arguments[-1] in complaint


@pytest.mark.parametrize("option", ["--out", "--like", "--model"])
def test_an_empty_name_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["generate", "a", option, ""])
    assert end.value.code == BAD_USAGE
    assert f"{option}: it is empty" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["generate", "a"], []])
def test_a_home_that_cannot_be_used_is_bad_usage_with_a_sentence(
    command: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    ended = safelight(*command, env=environment | {"SAFELIGHT_HOME": str(tmp_path / "file")})
    assert (ended.returncode, ended.stdout) == (BAD_USAGE, "")
    assert re.fullmatch(r"safelight: SAFELIGHT_HOME can't be used: .+file is a file\. .+\.\n", ended.stderr)


@pytest.mark.parametrize("arguments", [["a", "--size", "100x100"], ["a", "--out", "no/such"], ["a", "--out", "file"]])
def test_bad_usage_is_status_2_and_one_line(
    arguments: list[str], environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    environment["PYTHONPATH"] = str(Path.cwd())
    monkeypatch.chdir(tmp_path)
    ended = safelight("generate", *arguments, env=environment)
    assert (ended.returncode, ended.stdout) == (BAD_USAGE, "")
    assert re.fullmatch(r"safelight: .+\.\n", ended.stderr)


# Running


def finished(**changes: object) -> Finished:
    image = RgbImage(width=1, height=1, pixels=bytes(3))
    return Finished(job=1, request=GenerationRequest(), made_with=MADE_WITH, image=image, seconds=1.0).model_copy(
        update=changes
    )


def test_a_picture_that_could_not_be_saved_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    status = _hand_over(finished(save_error="The disk is full."), parser().parse_args(["generate", "a"]))
    assert status == FAILED
    assert capsys.readouterr() == ("", "safelight: The disk is full.\n")


async def test_the_first_ctrl_c_stops_and_the_second_is_the_systems() -> None:
    stopped = asyncio.Event()
    before = signal.getsignal(signal.SIGINT)
    try:
        with _interrupts(stopped.set):
            os.kill(os.getpid(), signal.SIGINT)
            await stopped.wait()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_pictures_are_the_engines_and_their_settings_read_back(environment: dict[str, str], tmp_path: Path) -> None:
    arguments = ["a red apple, 3d style", "--seed", "4294967295", "--count", "2", "--steps", "2", "--size", "64x64"]
    out = tmp_path / "apples"
    ended = safelight(
        "generate", *arguments, "--backend", "eager", "--json", "--quiet", "--out", str(out), env=environment
    )
    assert (ended.returncode, ended.stderr) == (OK, "")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [line["request"]["seed"] for line in lines] == [4294967295, 0]
    assert sorted(out.iterdir()) == sorted(Path(line["path"]) for line in lines)
    with Engine(version=__version__) as engine:
        for line in lines:
            request, made_with = read_settings(Path(line["path"]))
            assert request == GenerationRequest.model_validate(line["request"])
            again = engine.generate(request)
            assert again.made_with == made_with
            with Image.open(line["path"]) as image:
                assert image.tobytes() == again.image.pixels


def test_the_weights_asked_for_make_the_picture_which_says_so(environment: dict[str, str], tmp_path: Path) -> None:
    arguments = ["a pear", "--steps", "1", "--size", "64x64", "--backend", "eager", "--quiet", "--out", str(tmp_path)]
    ended = safelight("generate", *arguments, "--weights", "half", "--json", env=environment)
    assert ended.returncode == OK
    line = json.loads(ended.stdout)
    assert line["made_with"]["weights"] == "half"
    assert read_settings(Path(line["path"]))[1].weights is Weights.HALF
    refused = safelight("generate", *arguments, "--weights", "q4", env=environment)
    assert refused.returncode == BAD_USAGE
    assert "full" in refused.stderr


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.skip(f"there are no pseudo-terminals here: {error}")
    termios.tcsetwinsize(theirs, (24, 100))
    yield ours, theirs
    for descriptor in (ours, theirs):
        os.close(descriptor)


def test_ctrl_c_in_a_step_stops_cleanly_and_leaves_no_file(
    environment: dict[str, str], tmp_path: Path, terminal: tuple[int, int]
) -> None:
    ours, theirs = terminal
    program = subprocess.Popen(
        [*SAFELIGHT, "generate", "a cat", "--steps", "150", "--size", "256x256", "--backend", "eager"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    shown = b""
    while b"eager" not in shown:
        shown += os.read(ours, 4096)
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate()
    shown += os.read(ours, 65536)
    assert (program.returncode, out) == (INTERRUPTED, b"")
    assert b"/150" in shown
    assert b"Traceback" not in shown
    assert shown.rstrip().endswith(b"safelight: Stopped.")
    assert list((tmp_path / "home" / "pictures").iterdir()) == []


def test_ctrl_c_while_torch_is_imported_ends_the_process_in_order(
    environment: dict[str, str], tmp_path: Path, terminal: tuple[int, int]
) -> None:
    """The import can't be interrupted; the libraries' destructors must not run into it."""
    ours, theirs = terminal
    program = subprocess.Popen(
        [*SAFELIGHT, "generate", "a cat"], env=environment, stdout=subprocess.PIPE, stderr=theirs
    )
    shown = b""
    while b"torch" not in shown:
        shown += os.read(ours, 4096)
    program.send_signal(signal.SIGINT)
    program.communicate()
    assert program.returncode == INTERRUPTED
    assert list((tmp_path / "home" / "pictures").iterdir()) == []
