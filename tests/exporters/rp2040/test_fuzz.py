"""Files from anywhere: changed at random, arbitrary bytes, and inputs that a fuzzer kept for their coverage.

The latter are in `corpus.tar.xz`; fuzz.c in exporters/rp2040/firmware says what an input consists of.
"""

import io
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.rp2040 import inference, layout, uf2
from exporters.rp2040.layout import read_vocabulary
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.files import counting, model, remembering, uf2_file, vocabulary, with_sum

FOLDER = Path(__file__).parent
FIRMWARE = FOLDER.parents[2] / "exporters/rp2040/firmware"


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A few bytes of `data` changed, of its first ones every other time; now and then cut or longer."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        place = draw.randrange(min(48, len(changed)) if draw.random() < 0.5 else len(changed))
        new = draw.choice((bytes([draw.randrange(256)]), b"\0", b"\xff", b"\xff\xff", b"\0\x80", b"\xff\xff\xff\x7f"))
        changed[place : place + len(new)] = new
    kind = draw.random()
    if kind < 0.05:
        changed = changed[: draw.randrange(len(changed))]
    elif kind < 0.1:
        changed += bytes(draw.randrange(1, 600))
    return bytes(changed)


def endure(data: bytes, kind: str, draw: random.Random) -> bool:
    """Read a file, which may raise only ValueError, and use it; return True if it was accepted."""
    read = dict.fromkeys(("model", "memory", "counts"), lambda data: inference.Model(io.BytesIO(data)))
    found, reason = tried({**read, "vocabulary": layout.read_vocabulary, "uf2": read_back.split}[kind], data)
    if reason:
        return False
    if kind in read:
        # Sums that leave 32 bits do not fit the arrays, and are an error.
        tokens = list(found.tokens([2], 2, 256, 3, seed=draw.randrange(2**32)))
        assert all(0 < token < found.vocabulary for token in tokens)
        reference, reason = tried(read_back.read_model, data)
        assert "tables" in reason or not reason
        if reference and draw.random() < 0.1:
            assert list(found.tokens([3, 4], 3)) == list(reference.decode([3, 4], 3))
    elif kind == "vocabulary":
        text = b"The cat  sat\n12\xc3\xa9!"
        assert found.decode(found.encode(text)) == bytes(byte for byte in text if found.of_byte[byte] != 1)
    else:
        assert uf2.join(*found) == data
    return True


def tried(read, data: bytes):
    """(what `read` gives, "") or (None, why it refuses); any other exception passes."""
    try:
        return read(data), ""
    except ValueError as error:
        reason = str(error)
    assert reason.count("\n") == 0
    return None, reason


ORIGINALS = {"model": model, "memory": remembering, "counts": counting, "vocabulary": vocabulary, "uf2": uf2_file}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(ORIGINALS)), st.booleans(), st.integers(0, 2**32))
def test_a_changed_file_is_refused_or_works(kind, repaired, seed):
    draw = random.Random(seed)
    changed = mutated(ORIGINALS[kind](), draw)
    endure(with_sum(changed) if repaired and kind != "uf2" else changed, kind, draw)


@pytest.mark.slow
def test_a_hundred_thousand_changed_files_are_refused_or_work():
    draw = random.Random(0)
    accepted = dict.fromkeys(ORIGINALS, 0)
    for number in range(100_000):
        kind = list(ORIGINALS)[number % len(ORIGINALS)]
        changed = mutated(ORIGINALS[kind](), draw)
        if number // len(ORIGINALS) % 2 and kind != "uf2":
            changed = with_sum(changed)
        accepted[kind] += endure(changed, kind, draw)
    # So that the readers are tested behind their first checks.
    assert min(accepted.values()) > 1000, accepted


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_one_line(data):
    for start in (b"", b"TTM1\1\0\x28\0", b"TTV1\1\0\x18\0"):
        for read in (read_back.read_model, layout.read_vocabulary, read_back.split):
            for whole in (start + data, with_sum(start + bytes(8) + data)):
                with pytest.raises(ValueError, match=r"^[^\n]+$"):
                    read(whole)


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
        for reader, content in ((read_back.read_model, rest[:size]), (read_vocabulary, rest[size:])):
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
    for name, seed in (("memory", remembering()), ("counts", counting())):
        (corpus / name).write_bytes(len(seed).to_bytes(4, "little") + b"\1" + seed + vocabulary())
    options = ["-runs=100000", "-max_len=20000", "-seed=1", f"-artifact_prefix={tmp_path}/"]
    command = [tmp_path / "fuzz", *options, tmp_path / "found", corpus]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Done 100000 runs" in done.stderr


def usb(act: int, data: bytes = b"") -> bytes:
    """One act of a host, as fuzz_usb.c reads it."""
    return bytes([act | min(len(data), 31) << 3]) + data.ljust(8, b"\0")


@pytest.mark.slow
def test_the_usb_driver_endures_a_hundred_thousand_hosts(tmp_path):
    assert shutil.which("clang"), "apt-get install clang libclang-rt-14-dev"
    subprocess.run(["make", "-C", FIRMWARE, f"BUILD={tmp_path}", "fuzz_usb"], check=True, stdout=subprocess.DEVNULL)
    (tmp_path / "found").mkdir()
    requests = ("8006000100004000", "0005070000000000", "800600020000ff00", "0009010000000000", "2120000000000700")
    setups = [bytes.fromhex(request) for request in (*requests, "2122010000000000")]
    enumerated = b"".join(usb(0, setup) + usb(2) + usb(3, bytes(7)) + usb(2) for setup in setups)
    (tmp_path / "found" / "host").write_bytes(enumerated + usb(4, b"The cat\r") + usb(7, bytes(31)) + usb(6, b"x" * 8))
    options = ["-runs=100000", "-max_len=2000", "-seed=1", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run([tmp_path / "fuzz_usb", *options, tmp_path / "found"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Done 100000 runs" in done.stderr
