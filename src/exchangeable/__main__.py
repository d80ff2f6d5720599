"""Run the command line with ``python -m exchangeable``."""

from exchangeable.cli import main

main()
