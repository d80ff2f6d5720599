"""What is lawful about a table and yet seldom meant, said on stderr."""

from __future__ import annotations

from collections.abc import Iterable

import typer


def note(sentences: Iterable[str]) -> None:
    """Say them."""
    for sentence in sentences:
        typer.echo(f"exchangeable: note: {sentence}", err=True)
