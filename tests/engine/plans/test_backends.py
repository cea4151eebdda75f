"""Each backend says what it lacks; the automatic choice is one that works."""

from __future__ import annotations

import shutil

import pytest

from engine.plans import backends, inductor, openvino
from engine.plans.backends import KINDS, automatic, why_unavailable
from engine.request import Backend


def test_every_backend_but_the_automatic_one_has_its_kinds() -> None:
    assert set(KINDS) == set(Backend) - {Backend.AUTO}


def test_the_cpu_takes_openvino_by_itself() -> None:
    assert automatic("cpu") is Backend.OPENVINO


def test_without_openvino_the_cpu_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino.importlib.util, "find_spec", lambda name: None)
    assert automatic("cpu") is Backend.EAGER
    assert "pip install openvino" in (why_unavailable(Backend.OPENVINO) or "")


def test_inductor_on_the_cpu_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(inductor.shutil, "which", lambda name: None)
    assert "C++ compiler" in (why_unavailable(Backend.INDUCTOR) or "")
    monkeypatch.setattr(inductor.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert why_unavailable(Backend.INDUCTOR) is None


def test_cuda_takes_inductor_where_triton_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor.importlib.util, "find_spec", lambda name: object())
    assert automatic("cuda") is Backend.INDUCTOR
    monkeypatch.setattr(inductor.importlib.util, "find_spec", lambda name: None)
    assert automatic("cuda") is Backend.EAGER
    assert "Triton" in (why_unavailable(Backend.INDUCTOR, "cuda") or "")


def test_other_devices_run_eagerly() -> None:
    assert automatic("mps") is Backend.EAGER
    assert "cuda" in (why_unavailable(Backend.OPENVINO, "cuda") or "")
    assert all(backends.why_unavailable(Backend.EAGER, device) is None for device in ("cpu", "cuda", "mps", "xpu"))


def test_a_compiler_named_in_the_environment_is_the_one_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert shutil.which("no-such-compiler") is None
    assert why_unavailable(Backend.INDUCTOR) is not None
