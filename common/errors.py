"""Errors that end a stage with a message instead of a traceback."""


class UserError(ValueError):
    """An error that the user can fix: the message says what is wrong, what was given and what to type instead.

    Entry points print it without a traceback and exit with status 2.
    """


class MembersFailed(Exception):
    """Raised at the end of a run of many models when some could not be trained; all others were."""
