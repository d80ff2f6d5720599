"""Hatchling asks this before each build: wheel, source distribution and editable install."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface[Any]):
    """Builds the server's page first."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Bring the page's parts from npm, unless they are there."""
        runpy.run_path(str(Path(self.root, "scripts", "build_page.py")))["build"]()
