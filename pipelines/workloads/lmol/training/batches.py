"""Batches of pairs in which each different image occurs once."""

import torch
from torch import Tensor

from common.random import uniform
from pipelines.workloads.lmol import data


class Pairs:
    """Source of pairs of images, as uint8 or as encoded by a frozen encoder, on the device or read by workers.

    Item i is pair i: two images, a label and, where there are several attributes, the number of the one it is about.
    With a `shift`, each of its images is moved by up to that many pixels, and the edge is repeated where nothing moves
    in. With `turn`, it is turned and mirrored in one of eight ways, with `mirror` in one of two. All depend on (key, i)
    only.
    """

    def __init__(
        self,
        images: Tensor | data.Images,
        pairs: Tensor,
        encoded: Tensor | None = None,
        known: Tensor | None = None,
        targets: Tensor | None = None,
        shift: int = 0,
        turn: bool = False,
        mirror: bool = False,
        key: int = 0,
        workers: int = 0,
    ):
        self.images, self.pairs, self.encoded = images, pairs.cpu(), encoded  # (N, C, S, S), (P, 3), (N, ...)
        self.known, self.targets = known, targets  # (N, ...) scores; (P, 3) probabilities of the answers
        self.device = images.device if isinstance(images, Tensor) and not workers else torch.device("cpu")
        self.workers = workers
        self.shift, self.ways, self.key, self.size = shift, 8 if turn else 2 if mirror else 1, key, len(pairs)
        self.views = (2 * shift + 1) ** 2 * self.ways  # ways in which an image can be moved and turned

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return first and second (b,), rows of images (U, C, S, S) or of encoded (U, ...), and label (b,).

        Each different image of the batch is in it once; numbers (U,) tell images and their views apart. If given, known
        (U, ...) are their scores, target (b, 3) probabilities of the answers, and attribute (b,) attributes' numbers.
        """
        first, second, label, *about = self.pairs[items].T
        # Computed on the CPU, where the pairs are, so as not to wait for the device.
        view = (uniform(self.key, items, 2) * self.views).long().T.flatten() if self.views > 1 else 0
        unique, rows = torch.unique(torch.cat([first, second]) * self.views + view, return_inverse=True)
        rows, label, unique = (each.to(self.device, non_blocking=True) for each in (rows, label, unique))
        first, second = rows.chunk(2)
        batch = {"first": first, "second": second, "label": label, "numbers": unique}
        if self.targets is not None:
            batch["target"] = self.targets[items.cpu()].to(self.device, non_blocking=True)
        if about:
            batch["attribute"] = about[0].to(self.device, non_blocking=True)
        if self.known is not None:
            batch["known"] = self.known[unique // self.views]
        if self.encoded is not None:
            return {**batch, "encoded": self.encoded[unique]}
        images = self.images[unique // self.views]
        return {**batch, "images": self._moved(images, unique % self.views) if self.views > 1 else images}

    def _moved(self, images: Tensor, view: Tensor) -> Tensor:
        """Return images (U, C, S, S), each moved and turned as its view (U,) says."""
        places = 2 * self.shift + 1
        turn, y, x = (part[:, None] for part in (view // places**2, view // places % places, view % places))
        turn = 2 * turn if self.ways == 2 else turn  # from left to right alone
        line = torch.arange(images.shape[-1], device=view.device)
        turned = [torch.where(turn & bit > 0, line.flip(0), line) for bit in (1, 2)]
        y, x = ((each + move - self.shift).clamp(0, len(line) - 1) for each, move in zip(turned, (y, x), strict=True))
        mirrored = (turn & 4 > 0)[..., None]
        rows = torch.where(mirrored, y[:, None, :], y[:, :, None])  # (U, S, S)
        columns = torch.where(mirrored, x[:, :, None], x[:, None, :])
        image = torch.arange(len(images), device=view.device)[:, None, None, None]
        channel = torch.arange(images.shape[1], device=view.device)[:, None, None]
        return images[image, channel, rows[:, None], columns[:, None]]
