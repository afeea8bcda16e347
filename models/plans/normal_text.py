"""The form of text that models of plans learn and are asked in."""

import unicodedata

KEPT_FORMS = ("<super>", "<sub>", "<fraction>")  # m² is not m2
LINE_ENDS = {"\r": "\n", "\v": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n\n"}
# Quotes and dashes, as word processors write them.
SIGNS = {**dict.fromkeys("\u2018\u2019\u201a\u201b", "'"), **dict.fromkeys("\u201c\u201d\u201e\u201f", '"')}
SIGNS |= dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")


def normalise(text: str) -> tuple[str, int]:
    """Unify line ends, spaces, quotes, dashes, ligatures and accents, remove invisible characters; count all of these.

    This is NFKC, except that superscripts and fractions stay, as do private-use characters.
    """
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n"))
    table = {ord(character): _normal(character) for character in set(text)}
    changed = sum(text.count(chr(code)) for code, normal in table.items() if normal != chr(code))
    return unicodedata.normalize("NFC", text.translate(table)), changed


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
