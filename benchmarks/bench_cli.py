"""How long a user waits at the command line, warm."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from workloads import best, table


def seconds(*words: str) -> float:
    """Wall time of a command; the first run warms the caches."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(words, check=True, capture_output=True, cwd=place)
        return best(lambda: subprocess.run(words, check=True, capture_output=True, cwd=place), repeats=5)


def main() -> str:
    bare = seconds(sys.executable, "-c", "import numpy")
    rows = []
    for words in (["--help"], ["demo"]):
        time = seconds(sys.executable, "-m", "exchangeable", *words)
        rows.append([f"`exchangeable {words[0]}`", f"{time:.2f}", f"{time / bare:.1f}"])
    columns = ["command", "seconds", "in units of `python -c 'import numpy'`"]
    return "## Command line\n\n" + table(columns, rows)


if __name__ == "__main__":
    print(main())
