"""Regressions on an image's features: ridge, and kernel ridge by two lengths, on each kind of features, added up.

    score = level + sum_k w_k (f_k(features) - level)        w_k >= 0

Penalties and weights are those with the least error on images that the regressions were not fitted to (Breiman 1996,
stacked regressions), so that the sum is about as good as the best of them, or better. What is stored is the sum: linear
weights, and for each kind the features of images that kernels compare with, in principal components. Further targets,
such as whether a score is of a level, share penalties and weights: few images could not choose them for each.

    U images   F features of a kind   M images of the kernels   D components   T targets, the score first
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

MOST_IMAGES = 4000  # M at most, as the time to fit grows with their cube
COMPONENTS = 256  # D at most
MANY = 4096  # features of a kind
LENGTHS = (1.0, 2.0)  # of kernels, in root mean square differences of standardised features
PENALTIES = torch.logspace(-3, 3, 13, dtype=torch.float64)


class Kernels(nn.Module):
    """Weighted sums of Gaussian kernels between images and stored ones, by one kind of features."""

    axes: Tensor
    centre: Tensor
    stored: Tensor
    dual: Tensor

    def __init__(self, features: int, images: int, targets: int = 1):
        super().__init__()
        components = min(features, COMPONENTS)
        self.register_buffer("axes", torch.zeros(features, components))
        self.register_buffer("centre", torch.zeros(components))
        self.register_buffer("stored", torch.zeros(images, components))
        self.register_buffer("dual", torch.zeros(images, len(LENGTHS) * targets))

    def forward(self, features: Tensor) -> Tensor:
        """Return sums (U, T) for features (U, F)."""
        # The centre cancels most of the projection, as large weights do each other, so single precision loses digits.
        many = len(self.axes) > MANY or features.device.type == "mps"  # a tower's cells lose little, and take long
        exact = features.dtype if many else torch.float64
        axes, centre, stored, dual = (each.to(exact) for each in (self.axes, self.centre, self.stored, self.dual))
        square = distances(features.to(exact) @ axes - centre, stored)
        sums = [(-square / length**2).exp() @ dual.chunk(len(LENGTHS), 1)[i] for i, length in enumerate(LENGTHS)]
        return torch.stack(sums).sum(0).to(features.dtype)


class Regressions(nn.Module):
    """The sum of all regressions on features; `sizes` are the F of each kind."""

    weights: Tensor

    def __init__(self, sizes: Sequence[int], images: int, targets: int = 1):
        super().__init__()
        self.sizes, self.targets = list(sizes), targets
        self.register_buffer("weights", torch.zeros((sum(sizes) + 1) * targets))  # the constants last
        self.kernels = nn.ModuleList(Kernels(size, images, targets) for size in sizes)

    def forward(self, features: Tensor) -> Tensor:
        """Return predictions (U, T) from features (U, sum of F)."""
        weights = self.weights.view(-1, self.targets)
        found = features @ weights[:-1] + weights[-1]
        for kernels, part in zip(self.kernels, features.split(self.sizes, 1), strict=True):
            found = found + kernels(part)
        return found

    @torch.no_grad()
    def fit(self, seen: tuple[Tensor, Tensor], unseen: tuple[Tensor, Tensor]) -> None:
        """Fit to the `seen` features (U, sum of F) and scores (U,), or targets (U, T); penalties by the `unseen`."""
        from scipy.optimize import nnls  # not needed for inference

        images = len(self.kernels[0].get_buffer("stored"))
        rows = torch.linspace(0, len(seen[0]) - 1, min(len(seen[0]), images)).round().long()
        features, scores = seen[0].cpu()[rows], seen[1].double().cpu()[rows].view(len(rows), self.targets)
        others, known = unseen[0].cpu(), unseen[1].double().cpu().view(-1, self.targets)
        level = scores.mean(0)
        parts = (each.double().split(self.sizes, 1) for each in (features, others))
        kinds = [_Kind(own, further) for own, further in zip(*parts, strict=True)]
        found = [_ridge(*kernel, scores - level, known - level) for kind in kinds for kernel in kind.kernels()]
        guesses, truths = torch.stack([guess.T for _, guess in found], 2).numpy(), (known - level).T.numpy()  # (T, ...)
        alike = [slice(1), *[slice(1, None)] * (self.targets - 1)]
        shares = [nnls(guesses[at].reshape(-1, len(found)), truths[at].ravel())[0] for at in alike]
        duals = torch.from_numpy(np.stack(shares, 1))[:, None] * torch.stack([dual for dual, _ in found])
        linear = []  # weights (F, T) of the features of each kind, for those of images in its linear kernel
        for kernels, kind, (plain, *curved) in zip(self.kernels, kinds, duals.split(1 + len(LENGTHS)), strict=True):
            assert isinstance(kernels, Kernels)
            kind.store(kernels, torch.cat(curved, 1))
            linear.append(kind.own.T @ plain / kind.size / kind.deviation[:, None])
        constant = level - torch.cat([kind.mean for kind in kinds]) @ torch.cat(linear)
        self.weights.copy_(torch.cat([*linear, constant[None]]).flatten())


class _Kind:
    """One kind of features, of images that regressions are fitted to (N, F) and of others (n, F), in float64."""

    def __init__(self, features: Tensor, others: Tensor):
        self.mean, self.deviation = features.mean(0), features.std(0, correction=0).clamp_min(1e-6)
        self.own, self.others = ((each - self.mean) / self.deviation for each in (features, others))
        self.size = features.shape[1]
        self.scale = self.size**-0.5  # so that squared distances are means over features
        values, vectors = self.linear = torch.linalg.eigh(self.own @ self.own.T / self.size)
        kept = slice(-min(len(values), self.size, COMPONENTS), None)
        self.axes = self.own.T @ (vectors[:, kept] / (values[kept] * self.size).clamp_min(1e-9).sqrt())

    def kernels(self) -> list[tuple[tuple[Tensor, Tensor], Tensor]]:
        """Return each kernel's eigenvalues (N,), eigenvectors (N, N) and values of others (n, N), the linear first."""
        own, others = (each @ self.axes * self.scale for each in (self.own, self.others))
        near, far = distances(own, own), distances(others, own)
        curved = [(torch.linalg.eigh((-near / length**2).exp()), (-far / length**2).exp()) for length in LENGTHS]
        return [(self.linear, self.others @ self.own.T / self.size), *curved]

    def store(self, kernels: Kernels, duals: Tensor) -> None:
        """Write these images and their weights (N, K T) into `kernels`; the remaining rows and columns are 0."""
        for tensor in kernels.buffers():
            tensor.zero_()
        components = self.axes.shape[1]
        axes = self.axes * self.scale / self.deviation[:, None]
        kernels.axes[:, :components] = axes
        kernels.centre[:components] = self.mean @ axes
        kernels.stored[: len(duals), :components] = self.own @ self.axes * self.scale
        kernels.dual[: len(duals)] = duals


def _ridge(kernel: tuple[Tensor, Tensor], others: Tensor, scores: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights (N, T) of images at the penalties best for others, and the predictions (n, T) for these."""
    values, axes = kernel
    duals = axes @ ((axes.T @ scores).T[..., None] / (values.clamp_min(0)[:, None] + PENALTIES))  # (T, N, penalties)
    guesses = others @ duals  # (T, n, penalties)
    errors = (guesses - known.T[..., None]).square().mean(1)
    errors[1:] = errors[1:].mean(0)
    best, each = errors.argmin(1), torch.arange(len(errors))
    return duals[each, :, best].T, guesses[each, :, best].T


def distances(one: Tensor, other: Tensor) -> Tensor:
    """Return squared distances (n, m) of rows (n, D) from others (m, D)."""
    return (one.square().sum(1)[:, None] + other.square().sum(1) - 2 * one @ other.T).clamp_min(0)
