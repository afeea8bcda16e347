"""The one kind of error a user can mend."""


class UserError(ValueError):
    """Something the user can put right; the message says what is wrong, what was given and what to type instead.

    Entry points print it without a traceback and exit with status 2.
    """
