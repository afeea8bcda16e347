"""Addresses, project numbers, clients and sites, found by their form or their labels.

What a label names is a number or a name of the project, and is masked wherever the document repeats it.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Set
from itertools import combinations_with_replacement

from pipelines.workloads.bep.documents.addresses import addresses
from pipelines.workloads.bep.documents.lexicon import UPPER, english, known_names, lower_case, sound, terms
from pipelines.workloads.bep.documents.masking import ADDRESS, WORDS, Masker, columns
from pipelines.workloads.bep.documents.name_patterns import FIRM

UNLIKELY = -1.5  # the sound of an ordinary word, in a name of two or more
SHORTEST = 5  # letters of a word that stands for a whole name
SLOTS = {"address": ADDRESS, "project": "<project>", "client": "<client>", "site": "<site>"}
# In masking.json, ~ stands for a word of an address, and @ for capital letters.
_FORMS = "|".join(WORDS["address_forms"]).replace("~", WORDS["address_word"]).replace("[@", f"[{UPPER}")
ADDRESSES = re.compile(rf"(?<![\w/-])(?<!\d:)(?:{_FORMS})", re.MULTILINE)
_BEFORE = r"(?:^|\||(?<=[.;,] ))[ \t#*\d.]{0,8}"
_AFTER = r"(?=[ \t]*(?:\||$)|\.$|\. (?!\d)|, [a-z<])"
_ENDING = rf"(?:(?= [(-] ?[a-z]| \([^()\n]*\d|;| \u00b7)|{_AFTER})"
_GLOSS = r" \([^()\n]{2,25}\)"  # "Bauherr (Client):"
_COLON = r"[ .]*(?::? ?\||:) ?"
_NOUN, _OWNER, _WORD = (rf"(?i:{WORDS[kind]})" for kind in ("project_nouns", "number_owners", "number_words"))
_NUMBER = (
    rf"(?:{_NOUN}|{_OWNER})[- ]?{_WORD}|{_WORD}\.? ?(?:(?:de|do|of|d['\u2019]|du|del|dell['\u2019]|della) ?)?{_NOUN}"
)
_IS = r"(?:(?: (?!of\b|\d)[\w.'\u2019]{1,14}){0,3} ?(?::| is| est| \u00e8| es| lautet))?"  # "... of the client:"
_FIGURES = (
    r"(?=(?:[^\W\d_][\w./-]*\d[\w./-]*|[\w./-]*\d[\w./-]*[^\W\d_]|\d+[./-])[\w./-]*|\d{5})(?=(?:[A-Za-z./-]*\d){3})"
)
_ENDS = r"(?=[ \t]*(?:$|[|,;()/\n\u00b7]| - )| (?-i:[A-Z]))"
_SUM = r"(?!\d{1,3}(?:\.\d{3})+(?![\d-]))"
_WHOSE = rf"(?: {_OWNER}|(?: (?:del|du))? client\w*| del \w+| agence| MO[AE]| A[GN])?"
_CODE = r"(?=[\w./-]*\w[./-]\w|\d{7}|(?-i:[A-Z]{1,3})\d{4}|(?-i:[^\W\d_a-z]{1,5}) \d{4})(?=[\w./ -]{5})"
_PREFIX = r"(?:(?-i:[^\W\d_a-z]{1,5}) (?=\d{3}))"  # "ALV 0392"
_NO_DATE = r"(?!\d\d?[./]\d\d?(?:[./]\d|(?!\w))|\d{4}-\d\d-\d\d|[\w./-]*\.[a-z]{3,4}\b)"  # nor the name of a file
# A number of a project: behind a word for it, or behind "project" alone, where it is no word and no date.
PROJECTS = re.compile(
    rf"(?<![\w/.-])(?:(?:(?P<sure>{_NUMBER})(?:[.:#]|\(s\))*(?:{_GLOSS}| {_OWNER})?{_IS} ?\|? ?"
    rf"|(?:{WORDS['number_labels']}) (?:{WORDS['number_words']})\.? ?[:|]? ?)|(?:(?:{_NOUN}{_WHOSE}|{_WORD} {_OWNER}"
    rf"|{WORDS['number_labels']}){_COLON}{_SUM}(?={_PREFIX}?(?:{_FIGURES}|(?!(?:19|20)\d\d\b)\d{{4}}\b))(?={_PREFIX}?[\w./-]+{_ENDS})"
    rf"|(?!{WORDS['generics']})(?:{_NOUN}|{WORDS['number_labels']}) \(?{_SUM}{_CODE}(?![A-Z]* ?(?:19|20)\d\d(?![\w.]))"
    r"(?=[\d./-]{6}|[\w./-]*?[^\W\d_])(?=(?:[A-Za-z./ -]*\d){3})(?!(?:19|20)\d\d[/-]\d\d(?:\d\d)?\b))"
    rf"(?!{WORDS['no_numbers']}){_NO_DATE})"
    rf"(?P<it>{_PREFIX}?(?=[\w./-]*\d)(?:\d{{3}} (?=\d{{3}}-\d))?[\w./-]{{2,29}}\w(?::\d+)?)(?![\w%])",
    re.I | re.MULTILINE,
)
# The project in the name of a file or, as ISO 19650 has it, of a document: "P1140-VDW-STR-L03.ifc", "5520-QME-S-101".
FILED = re.compile(
    rf"(?<![\w./\\-])(?!(?i:{WORDS['no_numbers']})|(?:19|20)\d\d(?:\d{{4}})?[\W_]|12345?[\W_])"
    r"(?!\d+(?:mm|k?[AVW]|K|Q\d)[\W_]|(?:RFI|NCR|TQ)\d)(?P<it>[A-Z\d][A-Za-z\d]{2,9}(?:-[A-Z]{1,4}(?=_))?)"
    r"(?P<more>(?:[-_][^\W_]{1,20}){2,9}(?P<file>(?=\.(?:rvt|ifc|nw[cdf]|dw[gf]|dgn|pdf|docx|xlsx|e57|zip|xml|bcf\w*)\b))"
    r"|(?:[-_][A-Z\d]{1,6}){2,7}[-_]\d{3,6}(?![\w-]))"
)
SAID = re.compile(rf"(?<![\w-])(?:{_NOUN}|{_WORD}) (?P<it>[\w./-]+\w)")  # "order 22.4810", as others are written
NUMBERED = re.compile(rf"(?:[\w.]+ )?(?=proj|prosj|job|contr|auftr|affaire|comm)(?:{_NUMBER})\.?", re.I)
_CLIENT = rf"(?=[a-z]?[{UPPER}\d])[^|\n:,;]{{4,80}}?(?:[.,]* (?:{WORDS['legal_forms']})\b\.?)*"
_PART = rf"(?:[{UPPER}][\w'\u2019/-]*|\d{{1,3}}|&)"
_LINK = rf"(?! (?:und|and|y|e|et) )(?: (?:{WORDS['address_particles']})\b){{0,2}}"
_LEGAL = rf"(?: (?:{WORDS['legal_forms']})\b\.?)?"
# "Cloonmore Reservoir", "lyc\u00e9e des Trois-Alouettes"
CALLED = {
    kind: re.compile(
        rf"(?<![\w./\\-])(?:(?=[{UPPER}])(?:(?P<own>(?:{_PART} |de |na ){{1,7}})"
        rf"(?:{WORDS[kind + '_last']})(?: (?:{WORDS['kinds_of_work']}))?){_LEGAL}"
        rf"|(?:{WORDS[kind + '_first']}){_LINK} ?(?P<behind>{_PART}(?: {_PART}){{0,2}}(?:{_LINK} {_PART})?){_LEGAL})"
        r"(?![\w-])"
    )
    for kind in ("site", "client")
}
_MORE = rf" (?:(?:of|and|the|de|van|&) )?[{UPPER}\d][\w'\u2019-]{{0,40}}"
_NAMED = rf"(?<![\w./\\-])[{UPPER}][\w'\u2019-]{{1,40}}(?:{_MORE}){{1,7}}"
NAMED = re.compile(_NAMED + _LEGAL)
HEADED = {kind: re.compile(WORDS[f"{kind}_headings"], re.I) for kind in CALLED}
# "Aula Ost (job 2198)" with its number masked, "BIM Execution Plan for Aula Ost"; "the client, Uri Homes". In
# masking.json, @ stands for the name, and ~ for a label of clients.
_GIVEN = {kind: "|".join(WORDS[f"{kind}_given"]).replace("@", f"({_NAMED})") for kind in CALLED}
GIVEN = {kind: re.compile(it.replace("~", f"(?i:{WORDS['client_labels']})"), re.M) for kind, it in _GIVEN.items()}
LABELS = {
    kind: re.compile(rf"(?m){_BEFORE}(?i:(?:{label})(?: ?/ ?(?:{label})|{_GLOSS})?){_COLON}(?P<it>{value}){after}")
    for kind, label, value, after in (
        ("address", WORDS["address_labels"], r"[^|\n]*(?:\d|, (?:Co\.|County) )[^|\n]*?", _AFTER),
        ("client", WORDS["client_labels"], _CLIENT, rf"(?:{_ENDING}|(?=, [{UPPER}]))"),
        ("site", WORDS["site_labels"], rf"(?=[{UPPER}\d])[^|\n:;]{{4,100}}?", _ENDING),
    )
} | {"project": PROJECTS}
_FORM = rf",? (?:{WORDS['legal_forms']}|(?i:company))\b\.?"
ADDED = re.compile(rf"{_FORM}| [(\u2013-]|, |/")
# 'Wexcombe Health Trust (hereafter "WHT" or the Client)', "Client (WHT)"
BEHIND = r"[\"'\u201d]? ?\((?:[a-z]+ )*[\"'\u201c]?(?P<it>[^\W\d_][\w &]{1,9}?)(?=[\"'\u201d)])"


def mask_places(text: str, masker: Masker) -> str:
    """Mask addresses, project numbers, clients and sites."""
    listed = {match["it"] for match in LABELS["address"].finditer(text)}
    text = masker.matches(text, "address", ADDRESS, LABELS["address"])
    text = masker.spans(text, "address", ADDRESS, addresses(text))
    text = masker.matches(text, "address", ADDRESS, ADDRESSES, lambda match: "|" not in match[0])
    whole, ordinary = text, terms().union(english(), lower_case(text), WORDS["generic"])
    known: dict[str, set[str]] = {}
    for kind, mask in SLOTS.items():
        found = listed if kind == "address" else {match["it"] for match in LABELS[kind].finditer(text)}
        found |= _numbers(text, found) if kind == "project" else set()
        if kind in CALLED:
            found |= {match[0] for match in CALLED[kind].finditer(text) if _is_called(match, ordinary)}
            found |= {*_introduced(text, kind, ordinary)}
        known[kind] = named = {each for each in found if _is_own(each, kind)}
        if named:
            sure = {match["it"] for match in PROJECTS.finditer(text) if match["sure"]} if kind == "project" else ()
            forms = (_like(each, each in sure) if kind == "project" else re.escape(each) for each in named)
            groups = {group for each in named for group in re.findall(r"\d[\d.]*\d", each)} - named
            groups = {each for each in groups if kind == "project" and re.match(r"(?!(?:19|20)\d\d$)[\d.]{4}", each)}
            # "0576_ARC.ifc" and "AB/0576/12" of 2024/0576-KD
            in_files = (rf"{it}(?=[_-](?-i:[A-Z]))|(?<=[/_-]){it}(?=[/_-])" for it in map(re.escape, groups))
            text = masker.matches(text, kind, mask, _standing(forms, *in_files))
    for kind in ("site", "client"):
        said = {it for each in known[kind] for it in _short_forms(each, kind, whole, ordinary)}
        short = (re.escape(it) + (r"(?:-?\d{1,3})?" if it.isupper() else rf"(?-i:{_FORM})?") for it in said)
        text = masker.matches(text, kind, SLOTS[kind], _standing(short), _is_whole)
    return text


def _standing(forms: Iterable[str], *others: str) -> re.Pattern[str]:
    """Return the pattern of texts where no letters join them, the longest first."""
    either = "|".join([*sorted(forms, key=len, reverse=True), *others]) or "(?!)"
    return re.compile(rf"(?<![^\W_])(?:{either})(?![^\W_])", re.I | re.MULTILINE)


def _is_whole(match: re.Match[str]) -> bool:
    """Return whether no given name, as "The" is one, too, stands before the one word, which would be a surname."""
    before = match.string[max(0, match.start() - 30) : match.start()].split()[-1:]
    return " " in match[0] or known_names()[0].isdisjoint(before) or before[0].lower() in terms()


def _numbers(text: str, labelled: Collection[str]) -> set[str]:
    """Return the numbers of projects in columns and names of files, and those like others behind a word for one."""
    cells = (text[begin:end].strip() for heading, begin, end in columns(text) if NUMBERED.fullmatch(heading))
    found = {cell for cell in cells if re.fullmatch(rf"{_FIGURES}[\w./-]{{4,30}}", cell)}
    shapes = {re.sub(r"\d", "0", each) for each in found.union(labelled) if re.search(r"\d", each)}
    said = (match["it"] for match in SAID.finditer(text))
    return found | _filed(text) | {each for each in said if re.sub(r"\d", "0", each) in shapes}


def _introduced(text: str, kind: str, ordinary: Set[str]) -> Iterator[str]:
    """Yield the clients or sites below a heading or beside what introduces them."""
    named = {match[match.lastindex or 0] for match in GIVEN[kind].finditer(text)}
    named |= {text[begin:end].strip() for heading, begin, end in columns(text) if HEADED[kind].fullmatch(heading)}
    yield from (name for name in filter(NAMED.fullmatch, named) if _own_words(name, ordinary))


def _own_words(name: str, ordinary: Set[str]) -> list[str]:
    """Return the words of a name that are no ordinary ones by a dictionary."""
    words = re.findall(rf"[{UPPER}][^\W\d_]{{2,}}", name)
    words = [word for word in words if len(word) >= SHORTEST or not word.isupper()]  # no "NHS"
    return [word for word in words if ordinary.isdisjoint([word.lower(), word.lower().removesuffix("s")])]


def _filed(text: str) -> set[str]:
    """Return the projects in names of files and documents: numbers, and letters if two long names begin with them."""
    names = {(match["it"], match["more"], match["file"] is not None) for match in FILED.finditer(text)}
    begun = Counter(it for it, *_ in names)
    return {
        it
        for it, more, file in names
        if (re.match(r"\d\w{3}|[A-Z]+\d{4}", it) and re.search(r"[^\W\d_]", it + more) and (file or begun[it] > 1))
        or (more.count("-") + more.count("_") > 4 and begun[it] > 1 and it.isupper() and it.lower() not in terms())
    }


def _like(number: str, sure: bool) -> str:
    """Return the pattern of a number of a project however it is joined, and of others alike.

    "AB-24-117" is "AB_24_117" in names of files, and "AB-23-009" another one of the firm.
    """
    if number.isalpha():
        return rf"(?-i:{number})"
    letters, figures = (len(re.findall(kind, number)) for kind in (r"[^\W\d_]", r"\d"))
    parts, between = re.split(r"[\W_]", number), r"[\W_]?" if figures > 3 else r"[\W_]"
    written, others = (between.join(each) for each in (parts, [re.sub(r"\d", r"\\d", part) for part in parts]))
    alike = letters or (figures > 4 and re.fullmatch(r"\d+[/-]\d+", number))
    alike = alike and figures > 3 and len(parts) > 1 and (sure or letters > 1)
    return rf"{written}|(?!\d*[/-](?:19|20)\d\d\b){others}" if alike else written


def _short_forms(name: str, kind: str, text: str, ordinary: Set[str]) -> Iterator[str]:
    """Yield what else a text calls a client or a site: a part of its name, its letters, a word in brackets."""
    whole, *_ = ADDED.split(name)
    words = re.findall(r"[^\W\d_][\w'\u2019-]*", whole.title() if whole.isupper() else whole)
    own = [at for at, word in enumerate(words) if _own_words(word, ordinary)]
    capitals = [at for at, word in enumerate(words) if word[0].isupper()]
    for begin, end in combinations_with_replacement(capitals, 2):
        part = " ".join(words[begin : end + 1])
        if (begin < end or len(part) >= SHORTEST) and any(begin <= at <= end for at in own):
            yield part
    parts = (name.partition(" (")[0], whole)  # with its legal form, and without
    letters = ["".join(re.findall(r"(?<![^\W_])[^\W\d_]", part)).upper() for part in parts]
    codes = set(re.findall(r"(?<![^\W_])[A-Z]{3,6}(?![^\W\d_])", text))
    pairs = [(code, *sorted((it, code), key=len)) for it in letters for code in codes if it[:1] == code[0]]
    # One letter more or fewer than the initials; codes of as many have only to be letters of the name, as all below.
    alike = {code for code, few, many in pairs if len(few) + 1 == len(many) and re.search(".*".join(few), many)}
    alike |= {code for code, few, many in pairs if len(few) == len(many)}
    label = rf"(?:{re.escape(name)}|{WORDS[kind + '_labels']}){BEHIND}"
    shown = {match["it"] for match in re.finditer(label, text, re.I)}
    for each in shown | alike:
        if each.isupper() and each.lower() not in ordinary and re.search(".*".join(each), name, re.I):
            yield each


def _is_called(match: re.Match[str], ordinary: Set[str]) -> bool:
    """Return whether a name has a word of its own or, unless its kind is a `weak` sign, one that sounds like a name."""
    own = match["own"] or match["behind"]
    words = {word for word in re.findall(r"[^\W\d_]{3,}", own) if word.istitle() and word.lower() not in terms()}
    sounds = not match["weak"] and any(sound(word) > UNLIKELY for word in words - known_names()[0])
    return sounds or bool(_own_words(own, ordinary))


def _is_own(named: str, kind: str) -> bool:
    """Return whether a value is a name of its own, not a mask, a placeholder or a description by ordinary words."""
    words = re.findall(r"[^\W\d_]{2,}", named)
    person = 1 < len(words) < 4 and words[0] in known_names()[0]
    person = person and terms().isdisjoint([words[0].lower(), words[-1].lower()])
    prose = len(re.findall(r"\b[a-z]{4,}", named)) > (1 if kind == "client" else 3)
    own = any(word.lower() not in terms() for word in words) and not (prose or (person and not FIRM.search(named)))
    return "<" not in named and (kind == "project" or own)
