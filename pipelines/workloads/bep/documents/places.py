"""Addresses, project numbers, clients and sites, found by their form or their labels.

What a label names is a number or a name of the project, and is masked wherever the document repeats it.
"""

import re

from pipelines.workloads.bep.documents.lexicon import UPPER, known_names, terms
from pipelines.workloads.bep.documents.masking import ADDRESS, WORDS, Masker
from pipelines.workloads.bep.documents.name_patterns import FIRM

SLOTS = {"address": ADDRESS, "project": "<project>", "client": "<client>", "site": "<site>"}
# In masking.json, ~ stands for a word of an address, and @ for capital letters.
_FORMS = "|".join(WORDS["address_forms"]).replace("~", WORDS["address_word"]).replace("[@", f"[{UPPER}")
ADDRESSES = re.compile(rf"(?<![\w/-])(?<!\d:)(?:{_FORMS})", re.MULTILINE)
_BEFORE = r"(?:^|\||(?<=[.;,] ))[ \t#*\d.]{0,8}"
_AFTER = r"(?=[ \t]*(?:\||$)|\.$|\. (?!\d)|, [a-z])"
_COLON = r" ?(?::? ?\||:) ?"
# Behind a word for a number, or before what can only be one, no colon is needed.
_NUMBER = r" ?(?::? ?\||:) ?|(?<=[#°º]) |(?i:(?<=n[or])|(?<=ref)|(?<=n[or]\.)|(?<=ref\.)|(?<=code)|(?<=number|nummer)) "
LABELS = {
    kind: re.compile(rf"{_BEFORE}(?i:(?:{label})(?: ?/ ?(?:{label}))?)(?:{colon})(?P<it>{value}){_AFTER}", re.MULTILINE)
    for kind, label, colon, value in (
        ("address", WORDS["address_labels"], _COLON, r"[^|\n]*\d[^|\n]*?"),
        (
            "project",
            rf"(?:[\w/]+ )?(?:{WORDS['number_labels']})",
            _NUMBER + r"| (?!(?:BS|EN|ISO|DIN|IFC|MEP)\b)(?=[A-Z]{2,6}[-/][A-Z\d])",
            r"(?=[\w./-]*\d)[\w./-]{3,30}",
        ),
        ("client", WORDS["client_labels"], _COLON, rf"(?=[{UPPER}\d])[^|\n:,]{{4,80}}?"),
        ("site", WORDS["site_labels"], _COLON, rf"(?=[{UPPER}\d])[^|\n:]{{4,100}}?"),
    )
}


def mask_places(text: str, masker: Masker) -> str:
    """Mask addresses, project numbers, clients and sites."""
    listed = {match["it"] for match in LABELS["address"].finditer(text)}
    text = masker.matches(text, "address", ADDRESS, LABELS["address"])
    text = masker.matches(text, "address", ADDRESS, ADDRESSES, lambda match: "|" not in match[0])
    for kind, mask in SLOTS.items():
        found = listed if kind == "address" else {match["it"] for match in LABELS[kind].finditer(text)}
        if named := {each for each in found if _is_own(each, kind)}:
            pattern = "|".join(re.escape(each) for each in sorted(named, key=len, reverse=True))
            text = masker.matches(text, kind, mask, re.compile(rf"(?<![^\W_])(?:{pattern})(?![^\W_])", re.I))
    return text


def _is_own(named: str, kind: str) -> bool:
    """Return whether a value is a name of its own, not a mask, a placeholder or a description by ordinary words."""
    words = re.findall(r"[^\W\d_]{2,}", named)
    person = 1 < len(words) < 4 and words[0] in known_names()[0] and words[0].lower() not in terms()
    prose = len(re.findall(r"\b[a-z]{4,}", named)) > (1 if kind == "client" else 3)
    own = any(word.lower() not in terms() for word in words) and not (prose or (person and not FIRM.search(named)))
    return "<" not in named and (kind == "project" or own)
