"""A stage of the recipe: one command that is run only where its outputs are missing or made from something else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from files import digest, save_json


class StageFailed(Exception):
    """The stage's command failed, or did not leave what it promises."""


@dataclass(frozen=True)
class Stage:
    """`reads` are files that the outputs depend on, `writes` the files that must be there afterwards."""

    name: str
    command: tuple[str, ...]
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def is_complete(self, work: Path) -> bool:
        """Whether the outputs are there, from this very command and from inputs with the same content."""
        stamp = self._stamp_file(work)
        if not stamp.exists() or not all(path.exists() for path in (*self.reads, *self.writes)):
            return False
        return bool(json.loads(stamp.read_text(encoding="utf-8")) == self._stamp())

    def run(self, work: Path) -> None:
        """Run the command in `work` and remember what it was made from. Raises `StageFailed`."""
        self._stamp_file(work).unlink(missing_ok=True)
        finished = subprocess.run(self.command, env=os.environ | self.environment, cwd=work, check=False)
        if finished.returncode != 0:
            raise StageFailed(f"The stage {self.name} failed with exit status {finished.returncode}.")
        missing = [str(path) for path in self.writes if not path.exists()]
        if missing:
            raise StageFailed(f"The stage {self.name} did not write {', '.join(missing)}.")
        save_json(self._stamp_file(work), self._stamp())

    def _stamp(self) -> dict[str, object]:
        return {"command": list(self.command[1:]), "reads": {str(path): digest(path) for path in self.reads}}

    def _stamp_file(self, work: Path) -> Path:
        return work / "stamps" / f"{self.name}.json"


def run_stages(stages: list[Stage], work: Path) -> None:
    """Run, in order, every stage that isn't complete. Raises `StageFailed` at the first that fails."""
    for number, stage in enumerate(stages, 1):
        is_complete = stage.is_complete(work)
        state = "is complete" if is_complete else "begins"
        print(f"[{number}/{len(stages)}] {stage.name} {state}", file=sys.stderr, flush=True)
        if not is_complete:
            stage.run(work)
