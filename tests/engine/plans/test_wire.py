"""The engine's child processes: messages arrive whole, and no child outlives the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from engine.plans.wire import ChildProcess, Wire

ROOT = Path(__file__).resolve().parents[3]


def pair() -> tuple[Wire, Wire]:
    """Two ends of a connection inside this process."""
    (ours_in, theirs_out), (theirs_in, ours_out) = os.pipe(), os.pipe()
    ours = Wire(os.fdopen(ours_in, "rb"), os.fdopen(ours_out, "wb"))
    theirs = Wire(os.fdopen(theirs_in, "rb"), os.fdopen(theirs_out, "wb"))
    return ours, theirs


def test_messages_arrive_whole_and_in_order() -> None:
    ours, theirs = pair()
    large = os.urandom(3_000_000)

    def send() -> None:
        for number in range(5):
            ours.send("run", number, large)

    sender = threading.Thread(target=send)
    sender.start()
    assert [theirs.receive() for _ in range(5)] == [("run", number, large) for number in range(5)]
    sender.join()


def test_messages_of_many_threads_do_not_mix() -> None:
    ours, theirs = pair()

    def send(number: int) -> None:
        for _ in range(20):
            ours.send(number, bytes([number]) * 50_000)

    senders = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for sender in senders:
        sender.start()
    got = [theirs.receive() for _ in range(80)]
    assert all(content == bytes([number]) * 50_000 for number, content in got)
    assert sorted(number for number, _ in got) == sorted(list(range(4)) * 20)


@pytest.mark.parametrize("content", [b"", b"\x80\x05", b"not a pickle"], ids=["nothing", "cut", "garbage"])
def test_an_end_that_is_gone_is_an_end(content: bytes) -> None:
    incoming, outgoing = os.pipe()
    os.write(outgoing, content)
    os.close(outgoing)
    with open(incoming, "rb") as file, pytest.raises(EOFError):  # noqa: PTH123
        Wire(file, file).receive()


@pytest.fixture
def child() -> ChildProcess:
    return ChildProcess("--plan-converter")


def test_a_killed_child_is_gone_at_once_and_harmless(child: ChildProcess) -> None:
    assert child.is_running
    child.kill()
    child.kill()
    assert not child.is_running
    assert not psutil.pid_exists(child.pid)
    with pytest.raises(OSError, match="closed"):
        child.wire.send("convert")
    with pytest.raises(EOFError):
        child.wire.receive()


def test_a_reader_is_woken_when_its_child_is_killed(child: ChildProcess) -> None:
    ended = threading.Event()

    def read() -> None:
        with pytest.raises(EOFError):
            child.wire.receive()
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    child.kill()
    reader.join(60)
    assert ended.is_set()


@pytest.mark.skipif(not hasattr(os, "getsid"), reason="process groups are POSIX's")
def test_ctrl_c_in_the_terminal_does_not_reach_a_child(child: ChildProcess) -> None:
    try:
        assert os.getpgid(child.pid) != os.getpgid(0)
    finally:
        child.kill()


def test_modules_of_the_working_folder_are_not_taken_for_the_program_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("queue", "pickle", "torch", "openvino", "engine"):
        (tmp_path / f"{name}.py").write_text("open('taken', 'w').close()\nraise SystemExit(9)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    child = ChildProcess("--plan-worker")
    child.wire.send("load", str(tmp_path / "nothing.xml"), [])
    answer = child.wire.receive()
    child.kill()
    assert answer[0] == "refused"
    assert not (tmp_path / "taken").exists()


PARENT = """
import sys
from engine.plans.wire import ChildProcess
children = [ChildProcess("--plan-worker"), ChildProcess("--plan-converter")]
print(*(child.pid for child in children), flush=True)
sys.stdin.readline()
"""


def test_children_end_when_the_program_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=-1, stdout=-1, text=True, cwd=ROOT)
    assert parent.stdout is not None
    children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    gone, alive = psutil.wait_procs(children, timeout=60)
    assert (len(gone), alive) == (2, [])
