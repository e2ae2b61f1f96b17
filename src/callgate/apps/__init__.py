"""The programs: command line, terminal view. They only call what the floors below offer."""
