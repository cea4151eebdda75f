"""The command line: `safelight` opens the window, `safelight generate` makes pictures without one.

Only argparse is imported here; everything else when it is needed, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from app import __version__

OK, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130
CHILD_PROCESSES = (["--plan-worker"], ["--plan-converter"])

_EXAMPLES = """\
examples:
  safelight generate "a red apple, 3d style" --seed 7 --steps 30 --out apples/ --count 4 --sampler euler
  safelight generate --like apples/picture.png --guidance 6
  safelight generate "a red apple" --lora loras/clay.safetensors:0.8 --lora loras/night.safetensors

exit status: 0 done, 1 failed, 2 bad usage, 130 stopped with Ctrl-C (once stops cleanly, twice at once)
"""
# Written out, since asking the engine for them would cost more time than the rest of --help.
_SAMPLERS = "Euler, Euler a, DDIM, DPM++ 2M, DPM++ 2M Karras, DPM++ SDE, UniPC, Heun, LCM, PNDM"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(BAD_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status. `argv` leaves out the program's name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] in CHILD_PROCESSES:
        from engine.plans import child

        return child.main(arguments)
    try:
        options = parser().parse_args(arguments)
        return _generate(options) if options.command == "generate" else _open_window()
    except KeyboardInterrupt:
        return INTERRUPTED


def parser() -> argparse.ArgumentParser:
    whole = _Parser(
        prog="safelight",
        description="Makes images from text on your own computer. Without a command it opens the window.",
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"Safelight {__version__}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND")
    generate = commands.add_parser(
        "generate",
        help="make pictures without a window",
        description="Make pictures and print the path of each. What isn't said is the model's own default.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_picture_options(generate)
    _add_running_options(generate)
    return whole


def _add_picture_options(generate: argparse.ArgumentParser) -> None:
    picture = generate.add_argument_group("the picture")
    picture.add_argument("prompt", nargs="?", metavar="PROMPT", help="what to make, e.g. 'a red apple, 3d style'")
    picture.add_argument("--negative", metavar="PROMPT", help="what to stay away from")
    picture.add_argument("--seed", type=int, metavar="N", help="of the first picture; random and printed if left out")
    picture.add_argument("--steps", type=int, metavar="N", help="denoising steps")
    picture.add_argument("--guidance", type=float, metavar="X", help="guidance scale; 1 is without")
    picture.add_argument("--size", type=_size, metavar="WxH", help="in pixels, e.g. 128x128")
    picture.add_argument("--width", type=int, metavar="N", help="in pixels")
    picture.add_argument("--height", type=int, metavar="N", help="in pixels")
    picture.add_argument("--sampler", metavar="NAME", help=f"one of {_SAMPLERS}; also as euler-a or dpm++-2m-karras")
    picture.add_argument(
        "--model", type=_named, metavar="NAME", help="'starter', which comes along, or a diffusers model folder"
    )
    picture.add_argument(
        "--lora",
        type=_named,
        action="append",
        metavar="FILE[:STRENGTH]",
        help="a LoRA (.safetensors) and its strength, 1 if left out; may be given several times",
    )
    picture.add_argument("--like", type=_path, metavar="FILE", help="take every setting not given here from a picture")


def _add_running_options(generate: argparse.ArgumentParser) -> None:
    switch = ("auto", "on", "off")
    running = generate.add_argument_group("making it")
    running.add_argument("--count", type=int, default=1, metavar="N", help="pictures, with seeds counting up")
    running.add_argument(
        "--out", type=_path, metavar="FOLDER", help="where the pictures go; Pictures/Safelight if left out"
    )
    running.add_argument(
        "--backend",
        choices=("auto", "eager", "openvino", "inductor"),
        help="openvino and inductor (torch.compile) wait for their compiled plans, auto takes one if it is ready",
    )
    running.add_argument("--threads", type=int, metavar="N", help="how many threads to use; left out: all that help")
    running.add_argument(
        "--weights",
        choices=("full", "half", "int8"),
        default="full",
        help="half: two thirds of the memory for a fifth more time, nothing visible changes; int8: half of it",
    )
    running.add_argument("--vae-tiling", choices=switch, default="auto", help="decode in tiles, to need less memory")
    running.add_argument("--vae-slicing", choices=switch, default="auto", help="decode one picture at a time")
    running.add_argument("--quiet", action="store_true", help="show no progress")
    running.add_argument("--json", action="store_true", help="print one JSON object a picture instead of its path")


def _named(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; leave it out, or name something")
    return text


def _path(text: str) -> Path:
    return Path(_named(text))


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.lower().replace("×", "x").partition("x")
    try:
        return int(width), int(height)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' isn't a size such as 128x128") from None


def _generate(options: argparse.Namespace) -> int:
    if not _prepare():
        return BAD_USAGE
    from app import generate_command
    from app.process_end import spare_native_threads

    status = generate_command.run(options)
    spare_native_threads(status)
    return status


def _open_window() -> int:
    from app.system_libraries import why_no_window

    if (reason := why_no_window()) is not None:
        print(reason, file=sys.stderr)  # noqa: T201
        return FAILED
    if not _prepare():
        return BAD_USAGE
    from app import quick_start

    quick_start.begin()
    from app.start import run_window

    return run_window([])


def _prepare() -> bool:
    """Make the environment the program's own; False, and a sentence, where it has no place to write in."""
    from app import folders

    if (reason := folders.why_no_home()) is not None:
        print(f"safelight: {reason}", file=sys.stderr)  # noqa: T201
        return False
    folders.prepare_environment()
    return True
