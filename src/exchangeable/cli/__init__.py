"""The command line. Each command has its own module.

Exit codes: 0 not rejected, 1 rejected, 2 usage error, 3 undecided (invalid data, too little data, or an I/O error).
"""

from __future__ import annotations

import sys

from exchangeable._extras import check, needed
from exchangeable.cli.errors import UNDECIDED

__all__ = ["main"]


def main() -> None:
    """Run the program, or report the packages that are missing.

    Versions are checked first: with Typer 0.12 and a recent Click, every command is parsed as `--version` and exits
    with 0.
    """
    try:
        check("cli", "the command line")
        with needed("cli", "the command line"):
            from exchangeable.cli import program
    except ImportError as error:
        print(f"exchangeable: {error}", file=sys.stderr)
        sys.exit(UNDECIDED)
    program.run(sys.argv[1:])
