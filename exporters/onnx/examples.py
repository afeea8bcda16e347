"""The example in an export: a script of one file that uses its programs, without this project.

`script` puts one together from functions of this module; `EXAMPLES` says which.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps

from models.market import candle_features
from models.market.candles import Candles
from models.plans import chains, mixing

if TYPE_CHECKING:
    import onnxruntime  # at run time in `program`, as importing it starts threads

FOLDER = Path(__file__).parent


@cache
def program(name: str) -> "onnxruntime.InferenceSession":
    """Return a program of the export."""
    import onnxruntime

    return onnxruntime.InferenceSession(FOLDER / f"{name}.onnx")


@cache
def settings() -> SimpleNamespace:
    """Return the settings of the export."""
    return SimpleNamespace(**json.loads((FOLDER / "settings.json").read_text()))


def solve(locs: np.ndarray, demand: np.ndarray, capacity: float) -> tuple[list[int], float]:
    """Return the shortest of N - 1 greedy tours, one to each customer first, as nodes in order, and its length.

    locs (N, 2) lie in the unit square, the depot first; demand (N,) are whole numbers, 0 at the depot.
    """
    given = {"locs": locs, "demand": demand, "capacity": np.array(capacity)}
    given = {name: each.astype(np.float32)[None] for name, each in given.items()}
    shared = program("encoder").run(None, given)
    known = dict(zip(("query", "key", "value", "pointer_key", "distance"), shared, strict=True))
    known |= {name: given[name] for name in ("demand", "capacity")}
    nodes, full = len(locs), given["capacity"][:, None]
    node, load = np.arange(1, nodes)[None], np.repeat(full, nodes - 1, 1)
    waiting, tours = np.ones((1, nodes, nodes - 1), bool), []
    while True:
        load = np.where(node == 0, full, load - given["demand"][0][node])
        np.put_along_axis(waiting, node[:, None], False, 1)
        tours.append(node[0])
        if not waiting[:, 1:].any():
            break
        state = {"node": node, "load": load.astype(np.float32), "waiting": waiting}
        node = program("step").run(None, known | state)[0].argmax(1)
    found = np.stack(tours, 1)
    paths = given["locs"][0][np.pad(found, ((0, 0), (1, 1)))]  # from the depot and back to it
    lengths = np.linalg.norm(np.diff(paths, axis=1), axis=2).sum(1)
    return found[lengths.argmin()].tolist(), float(lengths.min())


def solve_random() -> None:
    """Print a tour through random customers."""
    customers = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    demand = np.random.randint(1, 10, customers + 1)
    demand[0] = 0
    print(*solve(np.random.rand(customers + 1, 2), demand, 30))


def tell(prompt: list[int], max_tokens: int) -> list[int]:
    """Return the tokens that follow the tokens `prompt`, up to the story's end, token 0."""
    none = np.zeros((settings().layers, 1, 0, settings().width), np.float32)
    state = {"keys": none, "values": none, "recent": np.zeros((1, settings().recent), np.int64)}
    new, story = [0, *prompt], []
    for _ in range(max_tokens):
        logits, *kept = program("step").run(None, {"tokens": np.array([new], np.int64), **state})
        state = dict(zip(state, kept, strict=True))
        for name in ("keys", "values"):  # positions beyond the context are never seen again
            state[name] = state[name][:, :, max(0, state[name].shape[2] - settings().context + 1) :]
        if (new := [int(logits[0, -1].argmax())]) == [0]:
            break
        story += new
    return story


def tell_prompt() -> None:
    """Print a story that begins with the words of the command line."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokens = tokenizer.encode(" ".join(sys.argv[1:]) or "Once upon a time").ids
    print(tokenizer.decode(tokens + tell(tokens, 256)))


class NetworkReader:
    """Reads one document by the network."""

    def __init__(self) -> None:
        self.state = [np.zeros(settings().state, np.float32)] * 2
        self.text = np.zeros(0, np.int64)

    def read(self, tokens: np.ndarray) -> None:
        """Read tokens (N,)."""
        hidden, cell = self.state
        given = {"tokens": tokens.astype(np.int64)[None], "hidden": hidden, "cell": cell}
        expected, *self.state = program("network").run(None, given)
        self.expected, self.text = expected[0, -1:], np.concatenate([self.text, tokens])

    follow = read  # generated tokens

    def ahead(self) -> np.ndarray:
        """Return the log-probabilities (V,) of the next token."""
        return np.asarray(self.expected[0])


class MixtureReader(NetworkReader):
    """Reads one document. An adapting reader counts it, beside the counts of the training text."""

    def __init__(self, adapting: bool = True) -> None:
        super().__init__()
        self.adapting, self.contexts = adapting, chains.CONTEXTS if adapting else chains.STORED
        arrays = np.load(FOLDER / "counts.npz")
        self.tables = [arrays[f"weights_{number}"][int(adapting)] for number in range(4)]
        self.counts = [chains.Counts(*(arrays[name] for name in ("keys", "offsets", "tokens", "counts")))]
        self.classes = chains.classes_of(settings().texts)

    def read(self, tokens: np.ndarray) -> None:
        """Read tokens (N,), and count them unless they are the first of the document."""
        if self.adapting and len(self.text):
            keys = self._keys(tokens)
            self.counts.append(chains.count(keys, tokens, chains.counted(keys, tokens, self.counts)))
        self.follow(tokens)

    def ahead(self) -> np.ndarray:
        """Return the log-probabilities (V,) of the next token."""
        found = chains.layers(self._keys(np.zeros(1)), np.zeros(1, np.int64), self.expected.shape[1], self.counts, None)
        return np.asarray(mixing.mixture(self.expected, found, self.tables)[0])

    def _keys(self, tokens: np.ndarray) -> np.ndarray:
        """Return the keys (N, K) of the contexts of the next tokens (N,)."""
        whole = np.concatenate([self.text, tokens]).astype(np.int64)
        return chains.contexts(whole, self.classes)[len(self.text) :, : self.contexts]


Reader: type[NetworkReader] = NetworkReader


def complete(prompt: str, characters: int) -> str:
    """Return the prompt's continuation, up to so many characters or the document's end."""
    reader, texts, end = Reader(), settings().texts, settings().end
    numbers = {text: number for number, text in enumerate(texts) if len(text) == 1 and number > end}
    prompt = prompt.lower() if settings().lower_case else prompt
    tokens = np.array([numbers.get(character, 1) for character in prompt])
    for part in (tokens[:1], tokens[1:]):
        if len(part):
            reader.read(part)
    found = ""
    while True:
        expected = reader.ahead()
        expected[:2] = -np.inf  # padding and unknown characters
        if (token := int(expected.argmax())) == end or len(found + texts[token]) > characters:
            return found
        found += texts[token]
        reader.follow(np.array([token]))


def complete_prompt() -> None:
    """Print the text of the command line, and its likeliest continuation."""
    text = sys.argv[1] if len(sys.argv) > 1 else "The information manager is "
    print(text + complete(text, 200))


def probabilities(columns: dict[str, np.ndarray], coin: str) -> np.ndarray:
    """Return the probabilities (n, 3) of the classes after each candle that has enough candles before it."""
    candles = Candles(coin, settings().timeframe_ms, **columns)
    table = candle_features.compute(candles, settings().features).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(table, settings().lookback, 0).transpose(0, 2, 1)
    windows = np.ascontiguousarray(windows[np.isfinite(windows).all((1, 2))])  # none in which a candle is missing
    if not len(windows):
        raise ValueError("too few candles without a gap, the oldest first")
    coins = np.full(len(windows), settings().coins.index(coin))
    return np.asarray(program("classifier").run(None, {"windows": windows, "coins": coins})[0])


def judge_file() -> None:
    """Print the last probabilities for a file with the columns time (ms), open, high, low, close and volume."""
    names, *rows = (line.split(",") for line in Path(sys.argv[1]).read_text().replace(", ", ",").splitlines() if line)
    wanted = ("time", "open", "high", "low", "close", "volume")
    columns = {name: np.array([row[names.index(name)] or "nan" for row in rows], float) for name in wanted}
    coin = (sys.argv[2:] or settings().coins)[0]
    found = probabilities({**columns, "time": columns["time"].astype(np.int64)}, coin)
    print(*settings().classes, *found[-5:], sep="\n")


def pixels(image: Image.Image) -> np.ndarray:
    """Return an image, white where it is transparent, as a square, the middle or the whole of it, (C, S, S) uint8."""
    image, side, lanczos = ImageOps.exif_transpose(image), (settings().size,) * 2, Image.Resampling.LANCZOS
    if image.mode in ("I", "F"):
        raise ValueError("pixels of 32 bits have no known range; save 8 or 16 bits a channel")
    if image.mode.startswith("I;16"):  # Pillow's own conversion clips at 255
        image = Image.fromarray((np.asarray(image) / 257).round().astype(np.uint8))
    white = Image.new("RGBA", image.size, "white")
    whole = Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    square = ImageOps.fit(whole, side, lanczos) if settings().fit == "crop" else whole.resize(side, lanczos)
    if settings().fit == "pad":  # to a pixel's thickness at least
        inner = [max(1, round(length / max(whole.size) * side[0])) for length in whole.size]
        square = ImageOps.pad(whole.resize(inner, lanczos), side, lanczos, "white")
    found = np.asarray(square).transpose(2, 0, 1)
    grey = (found * np.array([0.299, 0.587, 0.114], np.float32)[:, None, None]).sum(0, keepdims=True)
    return found if settings().channels == 3 else grey.round().astype(np.uint8)


def compare(first: Image.Image, second: Image.Image, number: int = 0) -> np.ndarray:
    """Return the probabilities (3,) of the answers by one attribute, the mean over both orders of the images."""
    encoded = program("encoder").run(None, {"images": np.stack([pixels(first), pixels(second)])})[0]
    pairs = {"first": np.array([0, 1]), "second": np.array([1, 0])}
    logits = program("comparison").run(None, {"encoded": encoded, **pairs})[number]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    given, swapped = shares / shares.sum(1, keepdims=True)
    return np.asarray((given + swapped[[1, 0, 2]]) / 2)


def compare_files() -> None:
    """Print the answers for two files and how likely each is, by attribute if there are several."""
    first, other = map(Image.open, sys.argv[1:3])
    for number, name in enumerate(getattr(settings(), "attributes", [""])):
        shares = zip(settings().answers, compare(first, other, number), strict=True)
        print(*[name] * bool(name), *(f"{answer}: {share:.1%}" for answer, share in shares), sep="\n")


_TEXT = ("A text and its likeliest continuation", '"The information manager is "', "")
# family -> (what its script does, its arguments, further packages to install, its parts, the function that is run)
EXAMPLES: dict[str, tuple[str, str, str, tuple[Callable[..., object] | str, ...], Callable[[], None]]] = {
    "routing": ("Tours through random customers", "[CUSTOMERS]", "", (solve,), solve_random),
    "tiny_transformer": ("A story, greedily", "PROMPT", " tokenizers", (settings, tell), tell_prompt),
    "char_lstm": (*_TEXT, (settings, NetworkReader, "Reader = NetworkReader", complete), complete_prompt),
    "char_mixture": (
        *_TEXT, (settings, NetworkReader, MixtureReader, "Reader = MixtureReader", complete), complete_prompt
    ),
    "cnn_lstm": (
        "Signals from columns time (ms), open, high, low, close, volume", "CANDLES.csv [COIN]", "",
        (settings, probabilities), judge_file
    ),
    "comparator": (
        "Which of two images ranks higher", "FIRST.jpg OTHER.jpg", " pillow", (settings, pixels, compare), compare_files
    ),
}  # fmt: skip
# Lines of imports; a script gets those whose last name it uses. Modules of the project lie beside it.
IMPORTS, SCRIPT = ((FOLDER / f"{name}.txt").read_text() for name in ("imports", "script"))


def script(family: str) -> bytes:
    """Return the example of a family as a file."""
    about, words, packages, parts, main = EXAMPLES[family]
    sources = [
        part if isinstance(part, str) else inspect.getsource(part).rstrip()
        for part in ("FOLDER = Path(__file__).parent", program, *parts, main)
    ]
    body = "\n\n\n".join(sources).replace("    import onnxruntime\n\n", "")  # at the top of a script
    imports = "\n".join(line for line in IMPORTS.split("\n") if not line or re.search(rf"\b{line.split()[-1]}\b", body))
    return SCRIPT.format(about=about, packages=packages, words=words, imports=imports, body=body, main=main).encode()
