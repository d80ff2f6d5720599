"""Copy the files that the page needs from npm: ``python scripts/build_page.py``. Every build does this too.

`npm ci` runs in a temporary folder, without the packages' install scripts, and verifies each package against the lock
file. The few files that the page uses are copied to ``vendor/``, with their licences and the digest of the lock file.
If the digest matches, there is nothing to do, so installing from a source distribution does not need npm. Without npm
there is a warning and no ``vendor/``: everything except the server's page works.
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
    """Return whether all files exist and were built from the current lock file."""
    stamp = VENDOR / STAMP
    return all((VENDOR / name).is_file() for name in FILES) and stamp.is_file() and stamp.read_text() == _digest()


def build() -> None:
    """Build ``vendor/`` unless it is up to date; if that fails, print a warning."""
    if fresh():
        return
    npm = shutil.which("npm")
    if npm is None:
        _warn("npm is not installed")
        return
    try:
        _build_vendor(npm)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        _warn(f"npm failed: {output.strip().splitlines()[-1] if output.strip() else error}")


def _build_vendor(npm: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(ROOT / name, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=PATIENCE)
        VENDOR.mkdir(exist_ok=True)
        (VENDOR / STAMP).unlink(missing_ok=True)  # an interrupted build leaves no stamp
        for name, source in FILES.items():
            _copy(Path(folder, "node_modules", source), VENDOR / name)
    _write(VENDOR / STAMP, _digest().encode())


def _copy(source: Path, target: Path) -> None:
    """Copy a file without the line that points a browser to a missing source map."""
    _write(target, re.sub(rb"\n/[/*]# sourceMappingURL=[^\n]*\s*\Z", b"\n", source.read_bytes()))


def _write(target: Path, content: bytes) -> None:
    """Write a file atomically: another build may read it, or write it too."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(target)


def _digest() -> str:
    return hashlib.sha256((ROOT / "package-lock.json").read_bytes()).hexdigest()


def _warn(reason: str) -> None:
    print(
        f"warning: the server's page was not built, because {reason}; everything else works. To build it, install "
        "npm and run 'python scripts/build_page.py'.",
        file=sys.stderr,
    )


if __name__ == "__main__":
    build()
    sys.exit(not fresh())
