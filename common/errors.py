"""The one kind of error a user can mend."""


class UserError(ValueError):
    """Something the user can put right; the message says what is wrong, what was given and what to type instead.

    Entry points print it without a traceback and exit with status 2.
    """


class MembersFailed(Exception):
    """Some of a run's many models could not be trained; the others are."""
