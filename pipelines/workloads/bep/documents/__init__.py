"""A folder of documents: what is read, refused, cleaned and masked of them, and how they are divided."""

from common.errors import UserError


def too_large(size: int, maximum_bytes: int) -> UserError:
    """Return the error for a file that is larger than the limit."""
    return UserError(f"has {size:,} bytes when expanded, more than data.maximum_bytes={maximum_bytes}")


def reason(error: Exception) -> str:
    """Return a library's error as a short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
