"""Patterns by which persons are found in a text: their names, and the titles, labels, roles and firms beside them."""

import re
from functools import lru_cache

from pipelines.workloads.bep.documents.lexicon import UPPER, WORD
from pipelines.workloads.bep.documents.masking import EMAIL, TELEPHONE, WORDS

_PARTICLE = WORDS["particles"]
_INITIAL = rf"(?:[{UPPER}]|Th|Chr?|Ph|Jos|Joh|Wm)\.(?:[ -]?[{UPPER}]\.)*"
# In 'Ada "Countess" Lovelace', the name in quotes belongs to it.
_GAP = r"(?: |(?<=\.)|-(?='t ))"
_NEXT = rf"(?:{_GAP}(?:{_PARTICLE} ){{0,3}}(?:{WORD}|{_INITIAL}|[{UPPER}]\b)| ['\"]{WORD}['\"](?= [{UPPER}]))"
_BARE = rf"(?<=[|,;:(&/] )[{UPPER}](?= [{UPPER}])"  # "| A B Lovelace |"
RUN = re.compile(rf"(?<![\w@./\\-])(?:(?:{_PARTICLE} ){{0,2}}{WORD}|{_INITIAL}|{_BARE})(?:{_NEXT}){{0,7}}(?![\w@\\])")
PIECE = re.compile(rf"((?:{_PARTICLE} ){{0,3}})({WORD}|{_INITIAL}|[{UPPER}]\b)")
TITLE = re.compile(rf"(?:(?<![\w.])(?:{WORDS['titles']})\.?(?: |(?<=\.)))+")
LABEL = re.compile(
    rf"(?<![\w-])(?:(?P<strong>(?i:{WORDS['labels']}))|(?P<weak>(?i:{WORDS['roles']})))"
    r"(?: (?:an|at|aus|de|du|for|from|in|of|on|pour|von|à) [^:|.\n]{0,25}| \([^)]*\))?"
    r"(?:[ ]?(?::|[._]{3,})|[ ](?=-[ ])|(?<=^cc)[ ]|$)"
)
# The end of a letter or a message, with the name below it or behind it.
CLOSING = re.compile(rf"^[> ]*(?i:{WORDS['closings']})[,.!]?[> \n]+(?P<who>[^\n]{{2,40}})$", re.MULTILINE)
FIRST = re.compile(r"(?:^|[\n|;:(/\u2013-]) ?$")  # in a line, a cell or an item of a list
PARTED = re.compile(r"[|,;]|^(?:\S+ ){1,3}[-\u2013\u2014] ")  # "ADA LOVELACE - LEAD", "ROW | ADA LOVELACE"
CHECKERS = re.compile(WORDS["checkers"], re.I)  # headings of cells that may hold initials alone
STRONG = re.compile(rf"(?:(?:project|team|model|key|client|current) )?(?:{WORDS['labels']})(?:\(s\))?", re.I)
WEAK = re.compile(rf"(?:{WORDS['roles']})|[RACI](?:/[RACI])?", re.I)
FIRMS = re.compile(rf"(?P<party>{WORDS['party_labels']})|{WORDS['firm_labels']}", re.I)
USERS = re.compile(rf"(?:{WORDS['users']})", re.I)
LOGIN = re.compile(r"(?<![\w@./\\-])[a-z][\w.-]{2,}\w(?![\w@-]|\.\w)")
USER = re.compile(rf"\b(?i:{WORDS['users']}) ?[:=] ?(?P<users>[\w.-]{{3,}}(?:, [\w.-]{{3,}})*)")
FIRM = re.compile(rf"(?:{'|'.join(WORDS['firms'])})(?!\w)", re.I)
_PARTNERS = rf"[&+] (?:{WORDS['partners']})|(?:{WORDS['ands']}) (?-i:{WORDS['partners']})"  # not "and co-workers"
FIRM_BEHIND = re.compile(rf" (?:{FIRM.pattern}|(?:{_PARTNERS})(?![\w-]))", re.I)
NO_NAME = re.compile(rf"{FIRM.pattern}|(?i:{WORDS['titles']})|(?-i:{WORDS['after_names']})", re.I)
_PLACE = re.compile(rf"(?:^|[^\w])(?:{WORDS['before_places']})\.? (?:(?:de|du|des|di|della|la) )?$", re.I)
PLACE = lru_cache(256)(_PLACE.search)
INVERTED = re.compile(
    rf"(?<![\w-])(?<![{UPPER}]\.)((?:(?i:{_PARTICLE}) ){{0,3}}{WORD})"
    rf"(?=, ({WORD}|{_INITIAL})((?: {_PARTICLE})?(?= ?(?:$|[\n|;(]))|)(?! [{UPPER}]|[\w@]))"
)
# "modelled by Ada Lovelace"
BY = re.compile(rf"(?:^|\W)(?:{WORDS['before_persons']}) $", re.I)
ASKED = re.compile(rf"(?:^|\W)(?:{WORDS['before_one_name']}) $", re.I)  # "ask for Ada"
# The words before a run are asked for with each part of it.
IS = lru_cache(256)(re.compile(rf"(?:^|\W)(?:{WORDS['roles']})(?: for \w+)?(?: is| was|,)? $", re.I).search)
ROLE = re.compile(rf"(?:,| is| was| acts as| as| \(|\n(?![^\n]*[:|]))(?: the| our| an?)? ?(?:{WORDS['roles']})\b", re.I)
JOINED = r"(?: \([^()\n]{1,40}\))?(?:\n(?:- )?|(?:,|;| /| ?&| and| und| et| y| e| en| i| ve| og| och| or) )"
OF = re.compile(r" \(| (?:of|at|bei|chez|bij) (?=[^\W\d_])")  # before the firm of a person; a bracket closes
REACHED = re.compile(rf"(?: \([^()\n]{{1,40}}\))?,? [(<]?[{EMAIL}{TELEPHONE}]")  # "Ada Lovelace (AL), +44 ..."
DOES = re.compile(rf" (?:{WORDS['after_persons']})\b")
ARTICLE = re.compile(rf"(?:^|\W)(?:(?:{WORDS['articles']}) |l['\u2019]\w* ?)$", re.I)
_SAID = "|".join(WORDS[kind] for kind in ("before_one_name", "after_persons", "closings"))  # "Hola", "Regards"
NOUN = re.compile(rf"\w{{5,}}(?:(?:ung|heit|keit|schaft|tion)(?:en|s)?|ción|zione)|(?:{STRONG.pattern})|{_SAID}", re.I)
_LETTERS = rf"[{UPPER}][{UPPER}a-z]{{0,3}}[{UPPER}]"
INITIALS = re.compile(rf"(?<![\w@.\\-])(?!(?:RE|AW|FWD?|SV|TR|WG):){_LETTERS}(?![\w@])")
# "AL = Ada Lovelace", "Ada Lovelace (AL)"
INITIALS_BEFORE = re.compile(rf"({_LETTERS})\)? ?[=:-] ?$")
INITIALS_BEHIND = re.compile(rf" \(({_LETTERS})\)")
# "Tz | Anna T\u00f6lz", "Anna T\u00f6lz (Tz)"
_SHOWN = r"(?P<it>[^\W\d_]{1,3}[^\W\d_])"
SHOWN_BEFORE = re.compile(rf"(?:^|[|\n(;,] ?){_SHOWN}\)? ?[|=:\u2013-] ?$", re.MULTILINE)
SHOWN_BEHIND = re.compile(rf" ?(?:[|=\u2013-] ?{_SHOWN}(?= ?[|;,\n)]|$))", re.MULTILINE)
# "| AL / CB |", "- AL and CB - Friday"
INITIALS_ALONE = re.compile(
    rf"(?:^|[|:=(\[]|(?<= )[-\u2013]) *(?P<them>{_LETTERS}(?:(?: ?[/,;&+] ?| (?:{WORDS['ands']}) ){_LETTERS})*)"
    r" *(?=$|[|:=)\]]|[-\u2013] )",
    re.MULTILINE,
)
# "AL to check", "AL: slab is late", "AL and CB will ask"
ACTS = re.compile(rf"(?:(?:,| &| /| (?:{WORDS['ands']})) ?{_LETTERS}){{0,3}}(?: (?:to|will|shall)|:) [a-z]")
