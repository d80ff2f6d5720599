"""Columns of a result as a frame of pandas, Polars or Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from exchangeable._extras import needed

LIBRARIES = ("pandas", "polars", "pyarrow")


def to_frame(columns: Mapping[str, Any], library: str | None, default: str) -> Any:
    """Return the columns as a frame of this library, or of the default one."""
    import narwhals as nw

    chosen: Any = library or default
    allowed = "library must be 'pandas', 'polars' or 'pyarrow', and installed"
    if library not in (None, *LIBRARIES):
        raise ValueError(f"{allowed}, got {library!r}")
    if library is None and chosen in LIBRARIES:
        with needed("files", f"frames of {chosen} (or name another library)"):
            import_module(chosen)
    try:
        return nw.from_dict(dict(columns), backend=chosen).to_native()
    except (ModuleNotFoundError, ValueError, TypeError) as error:
        raise ValueError(f"{allowed}, got {chosen!r}") from error
