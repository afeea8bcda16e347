"""Python, packages and disk, checked against what the pipelines need."""

import types

import pytest
import torch

from pipelines.checks import installation


@pytest.mark.parametrize(
    ("version", "level"), [((3, 10), "problem"), ((3, 11), "ok"), ((3, 13), "ok"), ((3, 14), "warning")]
)
def test_python_is_judged_by_what_is_supported(version, level):
    assert [finding.level for finding in installation.check_python(version)] == [level]


def test_packages_are_compared_with_their_pins(monkeypatch, tmp_path):
    (tmp_path / "requirements.txt").write_text(
        "# core\ntorch==0.1  # old\nnumpy>=1\npytest==0.2\nno-such-package-here==1.0\n"
    )
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    missing, differing = installation.check_packages()
    assert missing.level == "problem"
    assert missing.message == "not installed: no-such-package-here==1.0"
    assert missing.remedy.endswith(f"-m pip install -r {tmp_path}/requirements.txt")
    assert differing.level == "warning"
    assert f"torch {torch.__version__} (pinned: 0.1), pytest {pytest.__version__} (pinned: 0.2)" in differing.message


def test_a_full_disk_is_a_problem(monkeypatch, tmp_path):
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        installation.shutil, "disk_usage", lambda path: asked.append(path) or types.SimpleNamespace(free=10**9)
    )
    [finding] = installation.check_disk()
    assert asked == [tmp_path]  # where commands write, which is not where the program lies
    assert finding.level == "problem"
    assert "1.0 GB free" in finding.message
    assert "du -hd 2 data runs" in finding.remedy
