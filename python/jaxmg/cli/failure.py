"""How a command ends when it cannot do what was asked."""

from __future__ import annotations

import enum
import sys
from typing import IO, Any

import click


class Exit(enum.IntEnum):
    """Exit codes; 2 is also what click uses for a command line that it cannot parse."""

    SUCCESS = 0
    UNEXPECTED = 1
    USAGE = 2
    INPUT = 3
    NUMERICAL = 4
    MEMORY = 5
    OUTPUT = 6


class Failure(click.ClickException):
    """Ends the program with a message on standard error and the exit code given."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.exit_code = int(code)  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"jaxmg: {self.format_message()}", file=file or sys.stderr)


def bad_input(message: str) -> Failure:
    """A file that is missing, unreadable or holds something that cannot be solved."""
    return Failure(message, Exit.INPUT)
