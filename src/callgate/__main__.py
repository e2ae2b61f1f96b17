"""`python -m callgate` is the command line."""

from callgate.apps.cli import main

main()
