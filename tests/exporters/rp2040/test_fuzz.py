"""Files from anywhere: what the readers made of the inputs that a fuzzer once found worth keeping, and of new ones.

`corpus.tar.xz` has those inputs, each 4 bytes of the model's length, 1 byte of repairs, the model, the vocabulary
(exporters/rp2040/firmware/fuzz.c).
"""

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from exporters.rp2040.layout import read_model, read_vocabulary

FOLDER = Path(__file__).parent
FIRMWARE = FOLDER.parents[2] / "exporters/rp2040/firmware"


@pytest.fixture
def corpus(tmp_path):
    with tarfile.open(FOLDER / "corpus.tar.xz") as archive:
        archive.extractall(tmp_path / "corpus", filter="data")
    return tmp_path / "corpus"


def test_the_python_readers_refuse_or_read_what_was_kept(corpus):
    read, reasons = 0, []
    paths = sorted(corpus.iterdir())
    for path in paths:
        size, rest = int.from_bytes(path.read_bytes()[:4], "little"), path.read_bytes()[5:]
        for reader, content in ((read_model, rest[:size]), (read_vocabulary, rest[size:])):
            try:
                reader(content)
                read += 1
            except ValueError as error:
                reasons.append(str(error))
    assert len(paths) > 50
    assert read > 0
    assert reasons
    assert all(len(reason.splitlines()) == 1 for reason in reasons)


@pytest.mark.slow
def test_the_c_runtime_stays_within_its_buffers_on_a_hundred_thousand_inputs(corpus, tmp_path):
    assert shutil.which("clang"), "apt-get install clang libclang-rt-14-dev"
    subprocess.run(["make", "-C", FIRMWARE, f"BUILD={tmp_path}", "fuzz"], check=True, stdout=subprocess.DEVNULL)
    (tmp_path / "found").mkdir()
    options = ["-runs=100000", "-max_len=20000", "-seed=1", f"-artifact_prefix={tmp_path}/"]
    command = [tmp_path / "fuzz", *options, tmp_path / "found", corpus]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Done 100000 runs" in done.stderr
