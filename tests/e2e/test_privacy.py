"""Nothing leaves the machine, and nothing is written outside the program's own folders.

Libraries swallow connection errors, so blocking the network would prove nothing: attempts are counted. Every Python
process, children included, reports the sockets it connects and the names it looks up through an audit hook; where
strace is there, the kernel's view of all processes is counted as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOOK = """
import os, sys

def hear(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        with open(os.environ["SAFELIGHT_TEST_CONNECTIONS"], "a") as file:
            file.write(f"{event} {arguments!r}\\n")

sys.addaudithook(hear)
"""
OWN = (
    ".cache/safelight",
    ".config/safelight",
    ".local/share/safelight",
    ".local/state/safelight",
    "Pictures/Safelight",
)


def run_in_fresh_home(home: Path, *command: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a command with a home that has never seen anything; returns it with the connections it tried."""
    place = home.parent
    (place / "hook").mkdir(exist_ok=True)
    (place / "hook" / "sitecustomize.py").write_text(HOOK)
    (place / "temporary").mkdir(exist_ok=True)
    heard, traced = place / "connections.txt", place / "strace.txt"
    environment = {key: os.environ[key] for key in ("PATH", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
    environment |= {
        "HOME": str(home), "TMPDIR": str(place / "temporary"), "SAFELIGHT_TEST_CONNECTIONS": str(heard),
        "PYTHONPATH": os.pathsep.join([str(place / "hook"), str(ROOT)]),
    }  # fmt: skip
    strace = shutil.which("strace")
    prefix = [strace, "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect", "-o", str(traced)] if strace else []
    done = subprocess.run([*prefix, *command], env=environment, cwd=place, capture_output=True, text=True, check=False)
    attempts = heard.read_text().splitlines() if heard.exists() else []
    if traced.exists():
        attempts += [line for line in traced.read_text().splitlines() if re.search(r"AF_INET6?\b", line)]
    return done, attempts


def test_the_count_sees_an_attempt_that_a_library_swallows(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    swallowing = (
        "import socket, contextlib\nwith contextlib.suppress(OSError): socket.create_connection(('127.0.0.1', 9))"
    )
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {swallowing!r}])"
    done, attempts = run_in_fresh_home(tmp_path / "home", sys.executable, "-c", child)
    assert done.returncode == 0, done.stderr
    assert attempts


@pytest.mark.parametrize("backend", ["eager", "openvino"])
def test_loading_building_and_running_connect_to_nothing_and_stay_in_their_folders(
    tmp_path: Path, backend: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    done, attempts = run_in_fresh_home(
        home, sys.executable, "-m", "app", "generate", "a red apple", "--seed", "7", "--steps", "2", "--quiet",
        "--backend", backend,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert attempts == []
    files = [path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()]
    assert [file for file in files if not file.startswith(OWN)] == []
    assert [file for file in files if file.endswith(".png")]
    assert list((tmp_path / "temporary").iterdir()) == []
