"""Files from anywhere: changed at random, arbitrary bytes, and inputs that a fuzzer kept for their coverage.

The latter are in `corpus.tar.xz`; fuzz.c in exporters/rp2040/firmware says what an input consists of.
"""

import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.rp2040 import uf2
from models.stories.integer_transformer import Sampler
from models.stories.tokens import UNKNOWN
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.c_reader import CReader
from tests.exporters.rp2040.files import counting, model, patched, remembering, uf2_file, vocabulary, with_sum
from tests.properties import examples

FOLDER = Path(__file__).parent
FIRMWARE = FOLDER.parents[2] / "exporters/rp2040/firmware"
MANY = pytest.mark.parametrize("runs", [20_000, pytest.param(100_000, marks=pytest.mark.exhaustive)])


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
    found, reason = tried(
        {"vocabulary": beside_the_model, "uf2": read_back.split}.get(kind, beside_the_vocabulary), data
    )
    if reason:
        return False
    if kind == "uf2":
        assert uf2.join(*found) == data
    elif kind == "vocabulary":
        text = b"The cat  sat\n12\xc3\xa9!"
        read = read_back.Vocabulary(data)
        assert found.encode(text) == read.encode(text)
        assert found.decode(read.encode(text)) == bytes(byte for byte in text if read.of_byte[byte] != UNKNOWN)
    else:
        seed = draw.randrange(2**32)
        tokens = list(found.tokens([2], 2, 256, 3, seed))
        assert all(0 < token < found.size for token in tokens)
        reference, reason = tried(read_back.read_model, data)
        assert "tables" in reason or not reason
        if reference and draw.random() < 0.1:  # whose numbers have 64 bits: the chip's 32 sufficed
            assert tokens == list(reference.decode([2], 2, Sampler(reference, 256, 3, seed)))
            assert list(found.tokens([3, 4], 3)) == list(reference.decode([3, 4], 3))
    return True


def beside_the_vocabulary(data: bytes) -> CReader:
    """The reader of a model file."""
    return CReader(data, vocabulary())


def beside_the_model(data: bytes) -> CReader:
    """The reader of a vocabulary file, which belongs to the model if it has a header."""
    return CReader(patched(model(), 32, data[8:16]) if len(data) >= 16 else model(), data)


def tried(read, data):
    """(what `read` gives, "") or (None, why it refuses); any other exception passes."""
    try:
        return read(data), ""
    except ValueError as error:
        reason = str(error)
    assert reason.count("\n") == 0
    return None, reason


ORIGINALS = {"model": model, "memory": remembering, "counts": counting, "vocabulary": vocabulary, "uf2": uf2_file}


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(sorted(ORIGINALS)), st.booleans(), st.integers(0, 2**32))
def test_a_changed_file_is_refused_or_works(kind, repaired, seed):
    draw = random.Random(seed)
    changed = mutated(ORIGINALS[kind](), draw)
    endure(with_sum(changed) if repaired and kind != "uf2" else changed, kind, draw)


@pytest.mark.slow
@MANY
def test_many_changed_files_are_refused_or_work(runs):
    draw = random.Random(0)
    accepted = dict.fromkeys(ORIGINALS, 0)
    for number in range(runs):
        kind = list(ORIGINALS)[number % len(ORIGINALS)]
        changed = mutated(ORIGINALS[kind](), draw)
        if number // len(ORIGINALS) % 2 and kind != "uf2":
            changed = with_sum(changed)
        accepted[kind] += endure(changed, kind, draw)
    # So that the readers are tested behind their first checks.
    assert min(accepted.values()) > runs / 100, accepted


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_one_line(data):
    for start in (b"", b"TTM1\1\0\x28\0", b"TTV1\1\0\x18\0"):
        for read in (beside_the_vocabulary, beside_the_model, read_back.split):
            for whole in (start + data, with_sum(start + bytes(8) + data)):
                with pytest.raises(ValueError, match=r"^[^\n]+$"):
                    read(whole)


@pytest.fixture
def corpus(tmp_path):
    with tarfile.open(FOLDER / "corpus.tar.xz") as archive:
        archive.extractall(tmp_path / "corpus", filter="data")
    return tmp_path / "corpus"


def test_what_was_kept_is_refused_or_tells_a_story(corpus):
    told, reasons = 0, set()
    paths = sorted(corpus.iterdir())
    for path in paths:
        content = path.read_bytes().ljust(5, b"\0")
        size, repairs, rest = int.from_bytes(content[:4], "little"), content[4], content[5:]
        first, second = rest[:size], with_sum(rest[size:]) if repairs & 1 else rest[size:]
        if repairs & 2 and min(len(first), len(second)) >= 40:
            first = first[:32] + second[8:16] + first[40:]
        first = with_sum(first) if repairs & 1 else first
        found, reason = tried(lambda files: CReader(*files, bool(repairs & 4)), (first, second))  # noqa: B023
        reasons.add(reason)
        if found:
            told += all(token < found.size for token in found.tokens(found.encode(b"The cat"), 4, 256))
    assert len(paths) > 50
    assert told > 5, reasons
    assert len(reasons) > 20


@pytest.mark.slow
@MANY
def test_the_c_runtime_stays_within_its_buffers_on_many_inputs(corpus, tmp_path, runs):
    assert shutil.which("clang"), "apt-get install clang libclang-rt-14-dev"
    subprocess.run(["make", "-C", FIRMWARE, f"BUILD={tmp_path}", "fuzz"], check=True, stdout=subprocess.DEVNULL)
    (tmp_path / "found").mkdir()
    for name, seed in (("memory", remembering()), ("counts", counting())):
        (corpus / name).write_bytes(len(seed).to_bytes(4, "little") + b"\1" + seed + vocabulary())
    options = [f"-runs={runs}", "-max_len=20000", "-seed=1", f"-artifact_prefix={tmp_path}/"]
    command = [tmp_path / "fuzz", *options, tmp_path / "found", corpus]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr


def usb(act: int, data: bytes = b"") -> bytes:
    """One act of a host, as fuzz_usb.c reads it."""
    return bytes([act | min(len(data), 31) << 3]) + data.ljust(8, b"\0")


@pytest.mark.slow
@MANY
def test_the_usb_driver_endures_hosts_of_all_kinds(tmp_path, runs):
    assert shutil.which("clang"), "apt-get install clang libclang-rt-14-dev"
    subprocess.run(["make", "-C", FIRMWARE, f"BUILD={tmp_path}", "fuzz_usb"], check=True, stdout=subprocess.DEVNULL)
    (tmp_path / "found").mkdir()
    requests = ("8006000100004000", "0005070000000000", "800600020000ff00", "0009010000000000", "2120000000000700")
    setups = [bytes.fromhex(request) for request in (*requests, "2122010000000000")]
    enumerated = b"".join(usb(0, setup) + usb(2) + usb(3, bytes(7)) + usb(2) for setup in setups)
    (tmp_path / "found" / "host").write_bytes(enumerated + usb(4, b"The cat\r") + usb(7, bytes(31)) + usb(6, b"x" * 8))
    options = [f"-runs={runs}", "-max_len=2000", "-seed=1", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run([tmp_path / "fuzz_usb", *options, tmp_path / "found"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr
