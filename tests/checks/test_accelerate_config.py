"""Accelerate's default config, good and bad."""

import pytest
import torch

from pipelines.checks import accelerate_config


@pytest.mark.parametrize(
    ("text", "level", "says"),
    [
        ("distributed_type: 'NO'\nmixed_precision: 'no'\n", "ok", "NO, num_processes 1"),
        ("distributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 2\n", "problem", "would start only one process"),
        ("distributed_type: MULTI_GPU\nnum_processes: 2\n", "problem", "more processes than GPUs (0 per machine)"),
        ("distributed_type: 'NO'\nno_such_key: 1\n", "problem", "no_such_key"),
        ("- a list\n", "problem", "default Accelerate config"),
        ("a: [\n", "problem", "default Accelerate config"),
    ],
)
def test_the_default_accelerate_config_is_judged(monkeypatch, tmp_path, text, level, says):
    from accelerate.commands.config import config_args

    path = tmp_path / "default_config.yaml"
    path.write_text(text)
    monkeypatch.setattr(config_args, "default_config_file", str(path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    [finding] = accelerate_config.check_accelerate_config()
    assert finding.level == level
    assert says in finding.message
