"""The programs: the command line and what it shows in a terminal.

One law: a program only calls what the floors below offer to everybody; it holds no rule of its own.
"""
