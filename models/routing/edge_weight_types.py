"""Distances of VRPLIB: the EDGE_WEIGHT_TYPEs, and the layouts of matrices in files.

Definitions are those of TSPLIB 95 (Reinelt 1995). A new metric is one entry of METRICS. Places given by longitude and
latitude in decimal degrees, which TSPLIB lacks, are measured by `great_circle`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def nearest(lengths: Floats) -> Floats:
    """Return the nearest whole numbers, halves rounded up."""
    return np.floor(lengths + 0.5)


def euclidean(one: Floats, two: Floats) -> Floats:
    """Return the Euclidean distances (...) between places (..., 2)."""
    return np.asarray(np.sqrt(((one - two) ** 2).sum(-1)))


def geographic(one: Floats, two: Floats) -> Floats:
    """Return kilometres on the sphere between places of latitude and longitude, degrees and minutes as DDD.MM."""
    (latitude, longitude), (other, away) = (np.moveaxis(_radians(place), -1, 0) for place in (one, two))
    turned = np.cos(longitude - away)
    cosine = ((1 + turned) * np.cos(latitude - other) - (1 - turned) * np.cos(latitude + other)) / 2
    return np.asarray(6378.388 * np.arccos(np.clip(cosine, -1, 1)))


def _radians(places: Floats) -> Floats:
    degrees = np.trunc(places)
    return 3.141592 * (degrees + 5 * (places - degrees) / 3) / 180  # this pi is TSPLIB's


EARTH = 6371.0088  # mean radius in kilometres


def great_circle(one: Floats, two: Floats) -> Floats:
    """Return kilometres on the sphere between places (..., 2) of longitude and latitude in decimal degrees."""
    (longitude, latitude), (away, other) = (np.moveaxis(np.radians(place), -1, 0) for place in (one, two))
    across = np.cos(latitude) * np.cos(other) * np.sin((longitude - away) / 2) ** 2
    half_chord = np.sqrt(np.sin((latitude - other) / 2) ** 2 + across)
    return np.asarray(2 * EARTH * np.arcsin(np.minimum(half_chord, 1)))


def local_plane(places: Floats) -> Floats:
    """Return places (N, 2) of longitude and latitude as kilometres to the east and north of their middle.

    The projection is equirectangular: true along meridians and along the middle parallel. Longitudes are taken on the
    side nearest to the first place, so that the date line divides nothing.
    """
    longitude = places[0, 0] + (places[:, 0] - places[0, 0] + 180) % 360 - 180
    east, north = longitude - longitude.mean(), places[:, 1] - places[:, 1].mean()
    return np.asarray(EARTH * np.radians(np.stack([east * np.cos(np.radians(places[:, 1].mean())), north], -1)))


class Metric(NamedTuple):
    """A way to measure."""

    lengths: Callable[[Floats, Floats], Floats]  # coordinates (..., 2), (..., 2) -> distances (...)
    whole: Callable[[Floats], Floats] = nearest  # rounding of published results
    planar: bool = True  # whether coordinates lie in a plane; otherwise problems hold a matrix


METRICS = {
    "EUC_2D": Metric(euclidean),
    "CEIL_2D": Metric(euclidean, np.ceil),
    "MAN_2D": Metric(lambda one, two: np.abs(one - two).sum(-1)),
    "MAX_2D": Metric(lambda one, two: np.abs(one - two).max(-1)),
    "ATT": Metric(lambda one, two: np.sqrt(((one - two) ** 2).sum(-1) / 10), np.ceil),
    "GEO": Metric(geographic, lambda lengths: np.floor(lengths + 1), planar=False),
    "EXPLICIT": Metric(euclidean, planar=False),  # of a matrix
}

# The entries of a symmetric matrix in the order of the file. One triangle by columns reads as the other by rows.
LAYOUTS: dict[str, Callable[[int], tuple[NDArray[np.intp], NDArray[np.intp]]]] = {
    "FULL_MATRIX": lambda size: np.divmod(np.arange(size**2), size),
    **{name: lambda size: np.triu_indices(size, 1) for name in ("UPPER_ROW", "LOWER_COL")},
    **{name: lambda size: np.tril_indices(size, -1) for name in ("LOWER_ROW", "UPPER_COL")},
    **{name: lambda size: np.triu_indices(size) for name in ("UPPER_DIAG_ROW", "LOWER_DIAG_COL")},
    **{name: lambda size: np.tril_indices(size) for name in ("LOWER_DIAG_ROW", "UPPER_DIAG_COL")},
}


def in_a_plane(distance: Floats) -> Floats:
    """Return places (N, 2) whose distances approximate `distance` (N, N): classical scaling (Torgerson 1952)."""
    from scipy.linalg import eigh

    square = distance**2
    mean = square.mean(0)
    last = len(square) - 1
    values, vectors = eigh((mean + mean[:, None] - square - square.mean()) / 2, subset_by_index=[last - 1, last])
    places = vectors * np.sqrt(values.clip(0))
    largest = np.abs(places).argmax(0)
    # Either sign would do; this one is the same on every machine.
    return np.asarray(places * np.where(places[largest, [0, 1]] < 0, -1, 1))
