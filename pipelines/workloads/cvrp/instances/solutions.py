"""Solutions in the format of CVRPLIB's `.sol` files."""

from collections.abc import Sequence


def solution_text(routes: Sequence[Sequence[int]], cost: float) -> str:
    """Return the text of a `.sol` file; `cost` is in the problem's metric and is written without a point if whole."""
    lines = [f"Route #{number}: {' '.join(map(str, route))}" for number, route in enumerate(routes, 1)]
    cost = float(cost)
    lines.append(f"Cost {int(cost) if cost.is_integer() else cost}")
    return "\n".join(lines) + "\n"
