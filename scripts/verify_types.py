"""Count the public names whose types all type checkers agree on: ``python scripts/verify_types.py``.

Pyright counts them (``--verifytypes``), as for any package with a ``py.typed``. Fewer than 98 % is an error; the
names that lack a type, or whose type is only inferred, are listed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LEAST = 0.98
COMMAND = [sys.executable, "-m", "pyright", "--verifytypes", "exchangeable", "--ignoreexternal", "--outputjson"]


def main() -> int:
    """Print the share of names with a type, and the names without; return 1 if the share is too small."""
    folder = str(Path(sys.executable).parent)  # pyright finds the package's environment by PATH
    environment = {**os.environ, "PATH": os.pathsep.join([folder, os.environ.get("PATH", "")])}
    result = subprocess.run(COMMAND, capture_output=True, text=True, check=False, env=environment)
    try:
        report = json.loads(result.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        print(f"pyright failed: {result.stdout}{result.stderr}", file=sys.stderr)
        return 1
    for symbol in report["symbols"]:
        if symbol["isExported"] and not symbol["isTypeKnown"]:
            print(f"without a type, or only inferred: {symbol['name']}")
    share = report["completenessScore"]
    print(f"public names with a known type: {share:.1%} (at least {LEAST:.0%})")
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())
