"""``python -m bayescal``: the command line."""

from bayescal.cli import main

main()
