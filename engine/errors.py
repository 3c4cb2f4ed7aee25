"""Errors that end a process with one line, and the exit codes of section 6 of the design."""

EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_DIVERGED = 3
EXIT_CANNOT_SAVE = 4
PIVOTED = 100  # never leaves the process: it replaces itself and goes on under the new policy


class BadInput(Exception):
    """Something that a person gave us is wrong. The text is one line: file, key, what to do."""


class StopRequested(Exception):
    """A long piece of work noticed that the process was asked to stop; the work is redone at the next start."""
