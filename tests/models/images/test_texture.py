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
