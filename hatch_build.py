"""Hatchling calls this before each build: wheel, source distribution and editable install."""

from __future__ import annotations

import runpy
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildHook(BuildHookInterface[Any]):
    """Builds the server's page and the compiled kernels.

    The kernels go into the wheel or, for an editable install, next to their sources. A source distribution contains
    only the sources. The library uses the stable ABI of Python 3.11, so one wheel works with every later version on its
    platform.
    """

    def dependencies(self) -> list[str]:
        """What the build needs: ziglang, which pip downloads, if there is no C compiler."""
        needed = self.target_name == "wheel" and self._script("build_native")["compiler"]() is None
        return ["ziglang"] if needed else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what the target needs, before its files are collected."""
        self._script("build_page")["build"]()
        if self.target_name != "wheel":
            return
        check_interpreter()
        native = self._script("build_native")
        if version == "editable":
            native["build"](native["SOURCES"])
            return
        self._folder = tempfile.TemporaryDirectory()
        library = native["build"](Path(self._folder.name))
        build_data["force_include"][str(library)] = f"exchangeable/native/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{native['platform_tag']()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder once the wheel is written."""
        if version == "standard" and self.target_name == "wheel":
            self._folder.cleanup()

    def _script(self, name: str) -> dict[str, Any]:
        return runpy.run_path(str(Path(self.root, "scripts", f"{name}.py")))


def check_interpreter() -> None:
    """Stop with a one-sentence message if this interpreter does not support the stable ABI of Python 3.11."""
    name = sys.implementation.name
    if name != "cpython":
        raise SystemExit(f"exchangeable needs CPython, because its compiled part uses CPython's stable ABI, got {name}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit(
            "exchangeable needs a CPython with the global interpreter lock, got a free-threaded build, which does not "
            "support the stable ABI of Python 3.11"
        )
