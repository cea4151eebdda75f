"""The benchmarks answer, with every key that is asked of them; what they measure is looked at by people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NAMES = ("denoise", "cancel", "hosts", "lora", "pipeline", "responsiveness", "startup", "weights")


def _run(home: Path, name: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", *arguments]
    environment = os.environ | {"SAFELIGHT_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _results(home: Path, name: str, *arguments: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(_run(home, name, "--json", *arguments).splitlines()[-1])
    return results


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_explains_itself(tmp_path: Path, name: str) -> None:
    assert "--json" in _run(tmp_path, name, "--help")


@pytest.mark.slow
def test_denoise_has_its_keys_and_the_plan_agrees_with_eager(tmp_path: Path) -> None:
    results = _results(tmp_path, "denoise", "--rounds", "2", "--latent", "8")
    assert {
        "eager_s",
        "host_eager_s",
        "plan_s",
        "dynamic_plan_s",
        "speedup",
        "max_rel_diff",
        "gemm_share",
    } <= results.keys()
    assert results["max_rel_diff"] < 1e-4


@pytest.mark.slow
def test_hosts_has_its_keys(tmp_path: Path) -> None:
    results = _results(tmp_path, "hosts", "--rounds", "3")
    asked = {"fast_path_us", "fast_path_async_us", "first_build_s", "second_process_s", "second_size_ratio"}
    assert asked <= results.keys()


@pytest.mark.slow
def test_startup_has_its_keys(tmp_path: Path) -> None:
    results = _results(tmp_path, "startup", "--rounds", "1", "--closes", "2")
    assert {"help_s", "first_paint_ratio", "close_s", "close_loading_s", "close_step_s"} <= results.keys()


@pytest.mark.slow
def test_responsiveness_has_its_keys_and_one_object_a_phase(tmp_path: Path) -> None:
    results = _results(tmp_path, "responsiveness", "--only", "starter", "--seconds", "1")
    asked = {"p99_ms", "max_ms", "idle_p99_ms", "idle_max_ms", "torch_import_max_ms"}
    phases = {"torch_import", "load_starter", "plan_build", "idle", "starter_eager", "starter_plan"}
    assert asked | phases <= results.keys()
    assert all({"p99_ms", "max_ms"} <= results[phase].keys() for phase in phases)


@pytest.mark.slow
def test_pipeline_has_its_keys_and_every_way_makes_the_same_picture(tmp_path: Path) -> None:
    options = ("--only", "eager,sync,async", "--latent", "8", "--steps", "2", "--rounds", "1")
    results = _results(tmp_path, "pipeline", *options)
    (case,) = results["cases"]
    assert {"eager_s", "sync_s", "async_s", "compile_s", "async_speedup"} <= case.keys()
    assert results["peak_rss_mb"].keys() == {"eager", "sync", "async"}
    assert max(results["max_level_difference"].values()) <= 2


def test_a_model_of_the_size_of_sd15_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.models.description import describe
    from engine.models.load import load_module, load_tokenizer
    from tests.benchmarks import sd15

    small = {"block_out_channels": [32, 32, 32, 32]}
    monkeypatch.setattr(sd15, "UNET", sd15.UNET | small)
    monkeypatch.setattr(sd15, "VAE", sd15.VAE | small)
    monkeypatch.setattr(sd15, "TEXT_ENCODER", sd15.TEXT_ENCODER | {"num_hidden_layers": 1})
    folder = sd15.write_model(tmp_path / "model")
    written = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    assert describe(str(folder)).text_length == sd15.CONTEXT
    for part in ("text_encoder", "unet", "vae"):
        load_module(folder, part)
    tokens = load_tokenizer(folder)("a pear, é")["input_ids"]
    assert (tokens[0], tokens[-1]) == (sd15.END - 1, sd15.END)
    sd15.write_model(folder)
    assert {path: path.stat().st_mtime_ns for path in written} == written
