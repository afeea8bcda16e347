"""The tokens of a character model, special ones and a vocabulary of characters, and the form of text they stand for."""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence

SPECIAL_TOKENS = ("<pad>", "<unk>", "<end>", "<email>", "<telephone>", "<url>")
PAD, UNKNOWN, END = range(3)  # padding, a character outside the vocabulary, the end of a document
COPIED = 50  # characters of the shortest piece of training text that counts as copied
# In prepared text these private-use characters stand for masked parts, so that no text can spell a special token.
MASKS = {"\ue000": 3, "\ue001": 4, "\ue002": 5}
KEPT_FORMS = ("<super>", "<sub>", "<fraction>")  # m² is not m2
LINE_ENDS = {"\r": "\n", "\v": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n\n"}
# Quotes and dashes, as word processors write them.
SIGNS = {**dict.fromkeys("\u2018\u2019\u201a\u201b", "'"), **dict.fromkeys("\u201c\u201d\u201e\u201f", '"')}
SIGNS |= dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")


class Characters:
    """Convert text to token ids and back: first the special tokens, then the characters of `vocabulary` in order.

    The name of a special token in a text is read as plain characters: nothing that a user types can become <end>. With
    `lower_case`, text is lower-cased before it is encoded. Raises ValueError unless `vocabulary` is a sequence of
    different single characters.
    """

    def __init__(self, vocabulary: Sequence[str], lower_case: bool = False):
        wrong = [each for each in vocabulary if not isinstance(each, str) or len(each) != 1 or each in MASKS]
        if wrong or len(set(vocabulary)) != len(vocabulary):
            given = f"given {wrong[0]!r}" if wrong else "one of those given occurs twice"
            wanted = "different single characters without U+E000 to U+E002, which stand for masked text"
            raise ValueError(f"a vocabulary consists of {wanted} ({given})")
        self.vocabulary, self.lower_case = tuple(vocabulary), lower_case
        self.ids = {character: number for number, character in enumerate(vocabulary, len(SPECIAL_TOKENS))} | MASKS
        # A character that the model does not know is shown as the replacement character.
        self.texts = ("", "\ufffd", "", *SPECIAL_TOKENS[3:], *vocabulary)
        self.by_id = ("\0", "\ufffd", "\0", *MASKS, *vocabulary)
        self.spells = set("0123456789abcdef") <= self.ids.keys()

    def __len__(self) -> int:
        return len(self.texts)

    def encode(self, text: str) -> list[int]:
        """Return the id of each character; U+E000 to U+E002 are <email>, <telephone> and <url>.

        An unknown letter is read without its accent, any other unknown character is <unk>.
        """
        text = text.lower() if self.lower_case else text
        return [self.ids.get(each) or self.ids.get(unicodedata.normalize("NFD", each)[0], UNKNOWN) for each in text]

    def spelled(self, text: str) -> list[int]:
        """Return ids that lose nothing of a text: an unknown character is spelled, as by `spelling`."""
        text = text.lower() if self.lower_case else text
        known = {each: [self.ids[each]] if each in self.ids else self.spelling(each) for each in set(text)}
        return [number for character in text for number in known[character]]

    def spelling(self, character: str) -> list[int]:
        """Return <unk> and the hexadecimal UTF-8 of an unknown character; if digits are unknown too, as `encode`."""
        if not self.spells:
            return self.encode(character)
        return [UNKNOWN, *(self.ids[digit] for digit in character.encode("utf-8", "surrogatepass").hex())]

    def signs(self, ids: Iterable[int]) -> str:
        """Return a character for each id, from which `encode` makes the id again; <pad> and <end> are NUL."""
        return "".join(map(self.by_id.__getitem__, ids))

    def shown(self, signs: str) -> str:
        """Return a text of `signs` with the names of masks."""
        return "".join(self.texts[MASKS[sign]] if sign in MASKS else sign for sign in signs)

    def decode(self, ids: Iterable[int]) -> str:
        """Return readable text: masks as their names, <unk> as U+FFFD, <pad> and <end> as nothing."""
        return "".join(self.texts[number] for number in ids)


def normalise(text: str) -> tuple[str, int]:
    """Unify line ends, spaces, quotes, dashes, ligatures and accents, remove invisible characters; count all of these.

    This is NFKC, except that superscripts and fractions stay, as do private-use characters.
    """
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n"))
    table = {ord(character): _normal(character) for character in set(text)}
    changed = sum(text.count(chr(code)) for code, normal in table.items() if normal != chr(code))
    return unicodedata.normalize("NFC", text.translate(table)), changed


def typed_end(text: str, size: int) -> int:
    """Return how many characters at the end of a text become its last `size` when normalised."""
    before = len(normalise(text)[0]) - size  # counted from the left, as an accent without its letter is a character
    return len(text) - bisect_right(range(1, len(text) + 1), before, key=lambda end: len(normalise(text[:end])[0]))


def _normal(character: str) -> str:
    if character in LINE_ENDS:
        return LINE_ENDS[character]
    if character in "\n\t\f":
        return character
    if unicodedata.category(character) in ("Cc", "Cf", "Cn", "Cs"):
        return ""
    form, *parts = unicodedata.decomposition(character).split() or [""]
    if not form.startswith("<") or form in KEPT_FORMS:
        return SIGNS.get(character, character)
    whole = "".join(_normal(chr(int(part, 16))) for part in parts)
    # Unicode decomposes a lone accent into a space and a combining accent; it is kept as it is.
    return character if any(map(unicodedata.combining, whole)) and whole.startswith(" ") else whole
