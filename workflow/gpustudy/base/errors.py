"""Errors a user can mend."""

EXIT_USER_ERROR = 2
"""Exit code of every ``gpustudy`` verb for a mistake of the user's."""


class UserError(Exception):
    """A mistake the user can mend, told in one sentence.

    The sentence names the file, key or cell, says what is wrong with it and what to do next.
    Verbs print it without a traceback and exit with 2.
    """
