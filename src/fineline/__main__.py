"""``python -m fineline``: the command line."""

from fineline.cli.commands import main

main()
