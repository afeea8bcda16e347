"""Removal of what could reach a person, open a door, or name somebody.

E-mail addresses, telephone numbers and URLs become one character each, which the model reads as a special token; the
rarer kinds become a word in angle brackets. Rules are few and meant to be read; what they find and what they miss on a
labelled set stands in docs/bep.md.
"""

import importlib
import ipaddress
import json
import pkgutil
import re
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path

from models.plans.characters import MASKS

# By the time of masking, a text's own private-use characters have been removed.
EMAIL, TELEPHONE, URL = MASKS
IBAN, ADDRESS, SECRET, NAME = "<iban>", "<address>", "<secret>", "<name>"
# Given names that Faker lacks, patterns of words in names of firms, places and things, and the lengths of account
# numbers by country (SWIFT's register of IBAN).
WORDS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

EMAILS = re.compile(r"(?:mailto:)?(?<![\w.+-])[\w+][\w.+'-]{0,63}@(?:[\w-]+\.)+[a-z]{2,}\b", re.I)
# Without a scheme, only domains whose last part is not a file ending: model.v2.ifc is a file name.
URLS = re.compile(
    r"\b(?:(?:https?|ftps?|sftp)://|www\.)[^\s<>|\"]*[^\s<>|\".,;:!?)\]}']"
    r"|(?<![\w./\\@-])(?:[A-Za-z0-9-]+\.)+(?:com|org|net|gov|edu|eu|uk|ie|us|ca|au|nz|de|at|ch|fr|be|nl|es|it|pt|dk|se|no|fi|pl"
    r"|info|io|app|cloud|biz)(?:\.[a-z]{2})?\b(?![.-]?\w)(?:/[^\s<>|\"]*[^\s<>|\".,;:!?)\]}'])?"
)
_GAP = r"(?:[ .-]?[()]?[ .-]?|/(?!0))"  # within a number; a slash with spaces around it stands between two
# A telephone number is not part of a longer code; standards, scales and dates have other forms.
TELEPHONES = re.compile(
    rf"(?<![\w.:/+#-])(?:"
    rf"\+\d(?:{_GAP}\d){{7,14}}+(?:\d{{0,3}}(?:[/-]\d{{1,4}})*+(?!\w))?"  # +44 (0)20 7946 0123/24/25/26
    r"|(?:00[1-9]\d{0,2} \(?\d(?:[ ()]{0,3}\d){5,12}+"  # 0044 20 7946 0123
    r"|\(0\d{1,5}\) ?\d(?:[ -]?\d){4,8}+"  # (020) 7946 0123
    r"|(?:1[ -])?\(\d{3}\) ?\d{3}[ .-]\d{4}"  # (555) 010-0199
    r"|(?:1-)?\d{3}([.-])\d{3}\1\d{4}"  # 555-010-0199
    r"|0[1-9](?:\d{8,9}|\d{0,3}/\d{5,8})"  # 02079460123, 030/1234567
    r"|(?=(?:\d ?){9,12}+(?!\d))0[1-9]\d{0,3}(?: \d{2,6}+){1,4}+"  # 020 7946 0123
    r")(?!\w|[.:-]\w))"
)
LABELLED = re.compile(
    r"(\b(?:telephone|tel|phone|mobile|mob|fax|cell)(?: no| number)?\.?[ ]?[:.|] ?)"
    rf"[+(]?\d(?:{_GAP}\d){{5,14}}(?!\w)",
    re.I,
)
# What follows a number in a list: another one, or the last digits that differ ("020 7946 0123/24").
LISTED = re.compile(
    rf"({TELEPHONE} ?(?:[/,;&]|or|and) ?)(?:[+(]?\d(?:{_GAP}\d){{5,14}}|\d{{1,4}}(?![\d.%]| ?[A-Za-z]))(?!\w)"
)

IBANS = re.compile(
    "|".join(rf"\b{country}\d\d(?: ?[A-Z0-9]){{{length - 4}}}\b" for country, length in WORDS["iban_lengths"].items())
)
IPV4 = re.compile(r"(?<![\w.:/-])(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2})?(?::\d{2,5})?(?![\w-]|\.\d)")
IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?:/\d{1,3})?(?![\w:])", re.I)
SMALL = 32  # four numbers below this are the number of a heading or a version, unless a word says otherwise
NETWORK = re.compile(r"\b(?:ip|address|server|host|gateway|subnet|dns|vpn|firewall|router|nas|printer)\b", re.I)
# \\server\share, and C:\folder; a space belongs to a path only if a backslash or the ending of a file follows.
PATHS = re.compile(
    r"(?:\\\\[\w.$-]+|\b[A-Z]:)(?:\\(?:[^\s\\|<>\"]|(?<=\S) (?=[^\\|<>\":\n]{0,40}\\(?!\\)))*)+"
    r"(?:(?: [\w-]+){1,3}\.[a-z]{3,4}\b|(?<![.,;:)]))"
)
_LABEL = (
    r"pass(?:word|wd|phrase|code)|pwd|pin(?: code)?|(?:api|access|secret|private|account|licen[cs]e)[ _-]?key|"
    r"(?:access |auth )?token|secret"
)
LABELLED_SECRETS = re.compile(rf"(\b(?:{_LABEL})\s?(?:is|:|=|\||->)\s?[\"'`]?)([^\s\"'`|]*[^\s\"'`|.,;:)])", re.I)
KEYS = re.compile(
    r"-----BEGIN [A-Z ]*KEY-----.*?-----END [A-Z ]*KEY-----"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|sk_live_|hf_|AIza)[\w-]{16,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|\bssh-(?:rsa|ed25519) [A-Za-z0-9+/]{40,}={0,2}"
    r"|\b(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})\b",
    re.DOTALL,
)

_CAPITALISED = r"[A-Z\u00c0-\u00de][a-z\u00df-\u017e]+"
_WORD = rf"(?:[A-Z]['\u2019])?{_CAPITALISED}(?:[A-Z][a-z]+)?(?:-{_CAPITALISED})?"
_PARTICLE = r"(?:de|den|der|van|von|da|dos|di|del|della|la|le|al|bin|ibn|ten|ter|zu|af|el|y)"
_INITIALS = r"(?:[A-Z]\. ?){1,3}"
_SURNAME = rf"(?:{_PARTICLE} ){{0,2}}(?:{_WORD})"
TITLED = re.compile(
    r"\b(?:Mr|Mrs|Ms|Miss|Mx|Dr|Prof|Professor|Sir|Dame|Lady|Herr|Frau|Ing)\b\.? "
    rf"(?:{_INITIALS}|(?:{_WORD}) ){{0,2}}{_SURNAME}"
)
INVERTED = re.compile(rf"\b({_WORD}), (?:{_WORD})$")
CAPITALISED = re.compile(rf"\b(?:{_WORD})")
AFTER_GIVEN = [re.compile(rf"(?: (?:[A-Z]\.?|{_WORD})){{{more}}} {_SURNAME}(?![\w-])") for more in (2, 1, 0)]
NUMBERED = re.compile(
    r"(?:^|\n|\b(?:Part|Appendix|Annex|Section|Table|Figure))[#* ]*$"
)  # behind it, a letter is a number
INITIALLED = re.compile(rf"(?<![\w.]){_INITIALS}{_SURNAME}\b")
_ROLE = (
    r"(?:full |first |last |contact |project |key )?names?|author|authors|contact|prepared by|checked by|approved by|"
    r"reviewed by|authori[sz]ed by|issued by|signed(?: by)?|signature|attn|attention|client representative|"
    r"(?:[\w-]+ ){0,3}(?:manager|co-?ordinator|lead|director|architect|engineer|surveyor|officer|leader|owner|"
    r"author|reviewer|approver|originator|checker|planner)"
)
_CAPITALS = r"[A-Z]{2,} [A-Z]{2,}(?: [A-Z]{2,})?"
AFTER_ROLE = re.compile(
    rf"\b(?i:{_ROLE}) ?[:|] ?(?P<name>(?:{_INITIALS}|(?:{_WORD}) ){{1,3}}{_SURNAME}|{_CAPITALS})(?=\s*(?:[|\n,;(.]|$))",
    re.MULTILINE,
)
# Words that make a name that of a firm, a place, a thing or a role, within it or behind it.
FIRM = re.compile(rf"\b(?:{'|'.join(WORDS['firms'])})\b")
# Words that begin sentences, and dates.
COMMON = re.compile(
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December|(?:Mon|Tues|Wednes|Thurs|"
    r"Fri|Satur|Sun)day|North|South|East|West|The|This|These|That|It|Each|All|No|Not|See|For|To|In|On|At|By|Of|And|If|As|A|An|"
    r"We|He|She|They|Then|There|Now|After|Before|Where|When|Which|Who)\b"
)


def mask_secrets(text: str) -> tuple[str, dict[str, int]]:
    """Mask addresses, numbers of accounts and telephones, paths, keys and passwords; count each kind."""
    counts = {}
    for kind, mask in KINDS.items():
        text, counts[kind] = mask(text)
    return text, counts


def _replaced(
    pattern: re.Pattern[str], mask: str, is_one: Callable[[re.Match[str]], bool]
) -> Callable[[str], tuple[str, int]]:
    """Return a function that replaces the matches that are ones of a kind, and counts them."""

    def replace(text: str) -> tuple[str, int]:
        count = 0

        def chosen(match: re.Match[str]) -> str:
            nonlocal count
            if not is_one(match):
                return match[0]
            count += 1
            return mask

        return pattern.sub(chosen, text), count

    return replace


def _is_iban(match: re.Match[str]) -> bool:
    """Return whether the check digits are right (ISO 13616)."""
    plain = match[0].replace(" ", "")
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


def _is_ipv4(match: re.Match[str]) -> bool:
    parts = [int(part) for part in re.findall(r"\d+", match[0])[:4]]
    if max(parts) > 255:
        return False
    line = match.string.rfind("\n", 0, match.start()) + 1
    return max(parts) >= SMALL or NETWORK.search(match.string, max(line, match.start() - 60), match.start()) is not None


def _is_ipv6(match: re.Match[str]) -> bool:
    try:
        ipaddress.IPv6Interface(match[0])
    except ValueError:
        return False
    return len(match[0]) > 6


def mask_telephones(text: str) -> tuple[str, int]:
    """Replace each telephone number by one character, but keep a word such as "Tel:" before it; count them."""
    text, count = TELEPHONES.subn(TELEPHONE, text)
    text, labelled = LABELLED.subn(rf"\1{TELEPHONE}", text)
    count += labelled
    listed = 1
    while listed:  # each pass reaches one further in a list
        text, listed = LISTED.subn(rf"\1{TELEPHONE}", text)
        count += listed
    return text, count


def mask_keys(text: str) -> tuple[str, int]:
    """Replace keys by their form, and what stands after "password:" unless it is a plain word; count them."""
    text, count = KEYS.subn(SECRET, text)

    def value(match: re.Match[str]) -> str:
        nonlocal count
        word = match[2]
        if word == SECRET or len(word) < 4 or (word.isalpha() and (word.islower() or word.istitle())):
            return match[0]
        count += 1
        return match[1] + SECRET

    return LABELLED_SECRETS.sub(value, text), count


KINDS: dict[str, Callable[[str], tuple[str, int]]] = {  # in this order: a URL may hold what looks like another kind
    "key": mask_keys,
    "email": lambda text: EMAILS.subn(EMAIL, text),
    "url": lambda text: URLS.subn(URL, text),
    "iban": _replaced(IBANS, IBAN, _is_iban),
    "path": lambda text: PATHS.subn(ADDRESS, text),
    "ip": lambda text: _both(text, _replaced(IPV4, ADDRESS, _is_ipv4), _replaced(IPV6, ADDRESS, _is_ipv6)),
    "telephone": mask_telephones,
}


def _both(text: str, *masks: Callable[[str], tuple[str, int]]) -> tuple[str, int]:
    total = 0
    for mask in masks:
        text, count = mask(text)
        total += count
    return text, total


@cache
def known_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return given names and surnames: those in Latin letters that the package Faker has, of some 70 countries."""
    from faker.providers import person

    kinds: tuple[set[str], set[str]] = set(WORDS["given_names"]), set()
    for module in pkgutil.iter_modules(person.__path__):
        provider = importlib.import_module(f"{person.__name__}.{module.name}").Provider
        for attribute in dir(provider):
            values = getattr(provider, attribute) if "_name" in attribute else None
            if isinstance(values, tuple | list | dict):
                kinds[attribute.startswith("last")].update(word for value in values for word in str(value).split())
    given, surnames = (frozenset(filter(CAPITALISED.fullmatch, names)) for names in kinds)
    return given, surnames


def mask_names(text: str) -> tuple[str, int]:
    """Replace names of persons by <name>; count them.

    A name stands after a title or a role, begins with a common given name or with initials, or is the surname of
    somebody who is named in full elsewhere in the text, unless the same word is also written in lower case.
    """
    words = set(re.findall(r"\w+", text))
    spans = dict(_found(text, words))
    surnames = {re.split(r"[ .]", text[begin:end])[-1] for begin, end in spans.items()}
    alone = {name for name in surnames if len(name) > 2 and name.lower() not in words and not FIRM.fullmatch(name)}
    if alone:
        listed = "|".join(map(re.escape, sorted(alone, key=len, reverse=True)))
        for match in re.finditer(rf"\b(?:{listed})\b(?!['\u2019]?\w)", text):
            spans |= dict(_if_of_a_person(text, *match.span())) if match.start() not in spans else {}
    pieces: list[str] = []
    place = count = 0
    for begin, end in sorted(spans.items()):
        if begin < place:
            continue  # two rules found it
        pieces += [text[place:begin], NAME]
        place = end
        count += 1
    return "".join([*pieces, text[place:]]), count


def _found(text: str, words: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of names that a rule finds by themselves; a later one of the same begin counts."""
    given_names, surnames = known_names()
    for match in INITIALLED.finditer(text):
        surname = match[0].split()[-1]
        item = NUMBERED.search(text[max(0, match.start() - 12) : match.start()]) is not None
        if surname in surnames or not (item and surname.lower() in words):
            yield from _if_of_a_person(text, *match.span())
    for match in CAPITALISED.finditer(text):
        given = match[0].split("-")[0]
        following = CAPITALISED.match(text, match.end() + 1) if text[match.end() : match.end() + 1] == " " else None
        # A known surname, or one such as O'Shea, names a person behind any word that is no ordinary one here.
        named = following is not None and (following[0] in surnames or following[0][1] in "'\u2019")
        if given in given_names or (named and given.lower() not in words):
            ends = [rest.end() for pattern in AFTER_GIVEN if (rest := pattern.match(text, match.end()))]
            found = [span for end in ends for span in _if_of_a_person(text, match.start(), end)]
            if given.lower() in words and found and text[slice(*found[0])].split()[-1].lower() in words:
                continue  # both are ordinary words of this text, such as Grant Funding
            inverted = INVERTED.search(text, max(0, match.start() - 40), match.end())
            if found or not inverted:
                yield from found[:1]
            elif inverted[1] in surnames or inverted[1].lower() not in words:
                yield from _if_of_a_person(text, inverted.start(), match.end())
    for match in AFTER_ROLE.finditer(text):
        yield from _if_of_a_person(text, *match.span("name"))
    for match in TITLED.finditer(text):
        yield match.span()


def _if_of_a_person(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the span unless a word in it, or the next one, makes it the name of a firm, a place or a thing."""
    after = re.match(r" ?(?:&|and Sons?\b)| (\w+)", text[end : end + 30])
    firm = after is not None and (after[1] is None or FIRM.fullmatch(after[1]))
    if not firm and not FIRM.search(text, begin, end) and not COMMON.search(text, begin, end):
        yield begin, end
