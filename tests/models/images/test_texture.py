"""What simple predictors see: texture that tells degraded images apart, whatever their size, and coarse levels."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from models.images.texture import BANDS, FEATURES, coarse, texture

POWER = slice(2, 2 + BANDS)


def noise(side=32, count=6):
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, 3, side, side), np.uint8))


@pytest.mark.parametrize("side", [8, 9, 30, 64])
def test_images_of_any_size_have_finite_features_even_without_contrast(side):
    images = torch.cat([noise(side, 2), torch.full((1, 3, side, side), 7, dtype=torch.uint8)])
    found = texture(images)
    assert found.shape == (3, FEATURES)
    assert found.isfinite().all()
    assert found[2, POWER].abs().max() < 1e-3  # a plain image has no energy in any band
    assert coarse(images).shape[1] <= 3 * 64


def test_the_mean_power_of_bands_is_that_of_a_fourier_transform():
    grey = noise()[:1].float().mean(1)[0].numpy()
    power = np.abs(np.fft.fft2(grey - grey.mean())) ** 2 / grey.size
    line = np.abs(np.fft.fftfreq(len(grey)))
    band = (np.hypot(line[:, None], line) * 2 * BANDS).astype(int).clip(max=BANDS - 1)
    expected = [np.log1p(power[band == each].mean()) for each in range(BANDS)]
    np.testing.assert_allclose(texture(noise()[:1])[0, POWER].numpy(), expected, rtol=1e-4)


def test_edges_of_blocks_and_moments_are_those_of_another_program():
    """Stored models rely on these numbers."""
    grey = noise()[:1].float().mean(1)[0].double().numpy()

    def local(values):
        return gaussian_filter(values, 7 / 6, mode="nearest", radius=5)

    deviation = np.sqrt((local(grey**2) - local(grey) ** 2).clip(0))
    normal = (grey - local(grey)) / (deviation + 1)
    across, down, both = normal[:, 1:] * normal[:, :-1], normal[1:] * normal[:-1], normal[1:, 1:] * normal[:-1, :-1]
    steps = np.abs(np.diff(grey, axis=0)).mean(1), np.abs(np.diff(grey, axis=1)).mean(0)
    expected = [np.log((each[7::8].mean() + 0.1) / (each.mean() + 0.1)) for each in steps]
    expected += [np.log1p(deviation.mean()), deviation.std() / (deviation.mean() + 1)]
    for each in (normal, across, down, both):
        above = np.square(each.clip(0)).sum() / np.square(each).sum()
        expected += [each.mean(), each.std(), np.abs(each).mean() / each.std(), above]
    found = texture(noise()[:1])[0].numpy()
    np.testing.assert_allclose(np.r_[found[:2], found[POWER.stop : POWER.stop + 18]], expected, rtol=1e-3, atol=1e-5)


def test_blur_and_blocks_are_seen():
    plain = noise().float()
    blurred = torch.from_numpy(gaussian_filter(plain.numpy(), (0, 0, 1, 1)))
    assert (texture(blurred)[:, POWER.stop - 1] < texture(plain)[:, POWER.stop - 1] - 1).all()
    blocks = plain[..., ::8, ::8].repeat_interleave(8, 2).repeat_interleave(8, 3)
    assert (texture(blocks)[:, :2] > texture(plain)[:, :2] + 1).all()


def test_coarse_levels_are_means_of_blocks():
    images = noise(16)
    expected = images.float().unflatten(3, (8, 2)).unflatten(2, (8, 2)).mean((3, 5)).flatten(1)
    torch.testing.assert_close(coarse(images), expected)
