"""`python -m callgate` is the command line.

Law: it is the same program as `callgate`. (tests/test_cli.py::test_python_m_callgate_is_the_same_program)
"""

from callgate.apps.start import main

main()
