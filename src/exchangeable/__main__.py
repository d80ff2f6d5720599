"""`python -m exchangeable`."""

from exchangeable.cli import main

main()
