"""Durations in a readable form."""


def clock(seconds: float) -> str:
    """Format seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
