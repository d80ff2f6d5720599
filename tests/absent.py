"""Programs in which packages are absent, or of another version, whatever is installed here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

MODULES = {
    "backports-zstd": "backports",
    "mlflow-skinny": "mlflow",
    "prometheus-client": "prometheus_client",
    "protobuf": "google.protobuf",
    "scikit-learn": "sklearn",
}
NEVER = ("numpy", "narwhals", "exchangeable")  # the core

HIDDEN = """
import importlib.metadata, sys
def version(name, real=importlib.metadata.version):
    if name in {absent!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return {versions!r}.get(name) or real(name)
importlib.metadata.version = version
for name in {modules!r}:
    sys.modules[name] = None
"""

ONLY = """
import sys
class Only:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {{*sys.stdlib_module_names, *{allowed!r}}} and "_sysconfigdata" not in name:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Only())
"""


def without(*names: str, versions: Mapping[str, str] | None = None) -> str:
    """The beginning of a program in which these packages are absent, and others have these versions."""
    modules = [MODULES.get(name, name) for name in names]
    return HIDDEN.format(absent=names, versions=dict(versions or {}), modules=modules)


def only(*allowed: str) -> str:
    """The beginning of a program that has the core's packages and these, and no others."""
    return ONLY.format(allowed=(*NEVER, *allowed))


def run(program: str, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    # old packages may warn of what is deprecated in others
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def loaded(program: str, names: Iterable[str]) -> list[str]:
    """Which of these modules a program has imported at its end."""
    done = run(f"{program}\nimport json, sys\nprint(json.dumps([n for n in {list(names)!r} if n in sys.modules]))")
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found
