"""Where the program begins, before anything that takes time is imported.

Law: Ctrl-C ends the program with status 130 and no traceback, from the first moment on.
    (tests/test_cli_terminal.py::test_ctrl_c_in_the_first_second_is_no_traceback)
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    """The command line; Ctrl-C while it is being imported ends the process at once, for nothing has begun."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else the shell wants it ignored (nohup, &)
    if usual:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from callgate.apps.cli import main as run

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except KeyboardInterrupt:  # between two instructions of the start
        os._exit(130)
