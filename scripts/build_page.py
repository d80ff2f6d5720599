"""Bring what the page takes from npm into the package: ``python scripts/build_page.py``, or by itself at each build.

`npm ci` runs in a temporary folder, without the packages' own scripts, and checks each package against the lock; the
few files that the page uses are copied to ``vendor/``, together with their licences and the lock's digest. While the
digest fits there is nothing to do, so that npm is not needed to install from a source distribution. Without npm there
is one warning and no ``vendor/``: all but the server's page works.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "src" / "exchangeable" / "service" / "page" / "vendor"
STAMP = "package-lock.sha256"
PATIENCE = 300  # seconds for npm
FILES = {  # name in vendor/: file in node_modules/
    "swagger-ui-bundle.js": "swagger-ui-dist/swagger-ui-bundle.js",
    "swagger-ui-bundle.js.LICENSE.txt": "swagger-ui-dist/swagger-ui-bundle.js.LICENSE.txt",
    "swagger-ui.LICENSE": "swagger-ui-dist/LICENSE",
    "swagger-ui.NOTICE": "swagger-ui-dist/NOTICE",
    "swagger-ui.css": "swagger-ui-dist/swagger-ui.css",
    "uPlot.LICENSE": "uplot/LICENSE",
    "uPlot.esm.js": "uplot/dist/uPlot.esm.js",
    "uPlot.min.css": "uplot/dist/uPlot.min.css",
}


def fresh() -> bool:
    """Is everything there, and made from this very lock?"""
    stamp = VENDOR / STAMP
    return all((VENDOR / name).is_file() for name in FILES) and stamp.is_file() and stamp.read_text() == _digest()


def build() -> None:
    """Make ``vendor/`` if it is not fresh; if that cannot be, say why and leave it."""
    if fresh():
        return
    npm = shutil.which("npm")
    if npm is None:
        _warn("npm is not installed")
        return
    try:
        _make(npm)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        _warn(f"npm failed: {said.strip().splitlines()[-1] if said.strip() else error}")


def _make(npm: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(ROOT / name, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=PATIENCE)
        VENDOR.mkdir(exist_ok=True)
        (VENDOR / STAMP).unlink(missing_ok=True)  # whoever is interrupted leaves no stamp
        for name, source in FILES.items():
            _copy(Path(folder, "node_modules", source), VENDOR / name)
    _write(VENDOR / STAMP, _digest().encode())


def _copy(source: Path, target: Path) -> None:
    """A copy without the line that points a browser to a source map that is not there."""
    _write(target, re.sub(rb"\n/[/*]# sourceMappingURL=[^\n]*\s*\Z", b"\n", source.read_bytes()))


def _write(target: Path, content: bytes) -> None:
    """All at once: another build may be reading, or writing the same."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(target)


def _digest() -> str:
    return hashlib.sha256((ROOT / "package-lock.json").read_bytes()).hexdigest()


def _warn(reason: str) -> None:
    print(
        f"warning: the server's page was not built, {reason}; all else works. Install npm and run "
        "'python scripts/build_page.py' to have it.",
        file=sys.stderr,
    )


if __name__ == "__main__":
    build()
    sys.exit(not fresh())
