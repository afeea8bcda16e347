"""How far an export's answers may be from the model's."""

FRESH = 100  # inputs on which both are compared
TOLERANCE = 1e-4  # largest difference of an output, a probability or its logarithm that is taken for rounding


def check(worst: float, what: str) -> None:
    """Raise RuntimeError if the largest difference of `what` from the model is no rounding."""
    if not worst <= TOLERANCE:
        raise RuntimeError(f"{what} differs by {worst} from the model, more than {TOLERANCE}")
