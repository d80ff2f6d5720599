"""The command line: parse, call, print; a file for each command.

Exit codes: 0 not rejected, 1 rejected, 2 wrong usage, 3 could not decide (bad or too little data, input or output).
"""

from __future__ import annotations

import sys

from exchangeable._extras import check, needed
from exchangeable.cli.failures import UNDECIDED

__all__ = ["main"]


def main() -> None:
    """Run the program, or say in one sentence which packages it lacks.

    Versions are checked first: Typer 0.12 beside a new Click takes every command for `--version`, and exits with 0.
    """
    try:
        check("cli", "the command line")
        with needed("cli", "the command line"):
            from exchangeable.cli import program
    except ImportError as error:
        print(f"exchangeable: {error}", file=sys.stderr)
        sys.exit(UNDECIDED)
    program.run(sys.argv[1:])
