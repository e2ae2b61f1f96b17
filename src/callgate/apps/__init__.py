"""The programs: the command line and what it shows in a terminal.

Law: a program only calls what the layers below offer to everybody; it holds no rule of its own.
    (tests/test_architecture.py::test_the_import_contracts_hold)
"""
