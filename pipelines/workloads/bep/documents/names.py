"""Names of persons, by evidence.

Evidence of a person is a known name, the sound of an unknown one, a title, a label, a role beside it, the column of a
table, or a list of people. It is added up for each run of capitalised words; ordinary words, terms of building, firms
and places count against it. Only a person shown by strong evidence is looked for elsewhere by surname, given name or
initials.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import combinations_with_replacement

from pipelines.workloads.bep.documents import name_patterns as patterns
from pipelines.workloads.bep.documents.known_persons import STRONG_ENOUGH, Name, Piece, known_again, letters
from pipelines.workloads.bep.documents.known_persons import plain as spelled
from pipelines.workloads.bep.documents.lexicon import WORD, known_names, listed_names, lower_case, sound, terms
from pipelines.workloads.bep.documents.masking import TELEPHONE, WORDS, columns, written

SUFFIXES = ("Jr", "Sr", "II", "III", "IV")
ENOUGH_SOUND = 0.2  # on average of the words of a name
LIKELY, UNLIKELY = 0.5, -1.2  # sounds that speak for a name (63 % of names, 8 % of ordinary words) and against it
ENOUGH = 2  # evidence that makes a name
SIGNED = 4  # evidence below a letter
LONGEST_LIST = 500  # characters behind a label
LONGEST_ITEM = 60  # characters of a line in a list of persons

Edges = tuple[Collection[int], Collection[int]]  # the begins and the ends of names


class Reader:
    """Finds the persons of one text.

    `words` are those that the firm's documents write in lower case, `addresses` those of mail that the text held, and
    `persons` names that are masked in any case, as are their parts and initials where they stand for persons.
    """

    def __init__(self, text: str, words: Collection[str], addresses: Iterable[str] = (), persons: Collection[str] = ()):
        self.length, self.words, self.persons = len(text), words, persons
        self._ordinary = cache(self._is_ordinary)  # each word of a run is judged with up to five beside it
        self.text = text = "\n".join([text, *persons])  # whom the text names by initials alone is in a list behind it
        self.letters = set(map(chr, range(128))).union(*lower_case(text))  # an accent beyond them speaks for a name
        self.expected = bytearray(len(text))  # for each character, evidence that a person is named there
        listed = (match.span("users") for match in patterns.USER.finditer(text))
        self.users = [user.span() for span in listed for user in re.compile(r"[\w.-]+").finditer(text, *span)]
        lines = (line for line in re.finditer(".+", text) if line[0].isupper() and line[0].count(" ") > 1)
        headings = (range(*line.span()) for line in lines if not patterns.PARTED.search(line[0]))
        self.headings = {place for line in headings for place in line}
        self.firms: set[int] = set()  # places in columns of firms
        # Firms of several words in such columns, and known ones that are named like persons.
        self.employers = {firm for firm in WORDS["known_firms"] if firm in text}
        self.cells: dict[str, list[tuple[int, int]]] = {}
        for heading, begin, end in columns(text):
            self.cells.setdefault(heading, []).append((begin, end))
            cell, firm = text[begin:end].strip(), patterns.FIRMS.fullmatch(heading)
            if firm and not (firm["party"] and known_names()[0] & {*cell.split()}):  # a party may be a person
                self.firms.update(range(begin, end))
                self.employers.update([cell] if " " in cell else [])
            elif patterns.USERS.fullmatch(heading):
                self.users += [it.span() for it in patterns.LOGIN.finditer(text, begin, end) if it[0] not in terms()]
            elif weight := 3 if patterns.STRONG.fullmatch(heading) else 2 * bool(patterns.WEAK.fullmatch(heading)):
                self._expect(begin, end, weight)
        self._expect_in_lines()
        for match in patterns.CLOSING.finditer(text):
            self._expect(*match.span("who"), SIGNED)
        accounts = [address.split("@")[0] for address in addresses] + [text[slice(*user)] for user in self.users]
        self.accounts = " ".join(accounts).lower()  # they speak for the names in them

    def _expect(self, begin: int, end: int, weight: int) -> None:
        self.expected[begin:end] = bytes([max(weight, *self.expected[begin : begin + 1], 0)]) * (end - begin)

    def _expect_in_lines(self) -> None:
        """Expect persons behind labels, and in lines below a label that stands alone."""
        listing, place = False, 0
        for line in self.text.split("\n"):
            for match in patterns.LABEL.finditer(line):
                rest, *_ = re.split(r"\||(?<=[^\W\d_]{4})\. ", line[match.end() :][:LONGEST_LIST], maxsplit=1)
                begin = place + match.end()
                self._expect(begin, begin + len(rest), 3 if match["strong"] else 2)
            said = line.strip()
            label = patterns.LABEL.fullmatch(said)
            alone = (label and (label["strong"] or ":" in line)) or (said and patterns.STRONG.fullmatch(said))
            item = said and len(line) < LONGEST_ITEM and not re.match(r"\d+(?:\.\d+)* |.*[|:]", line)
            if listing and not alone and item:
                self._expect(place, place + len(line), 3)
            listing = bool(alone or (listing and item))
            place += len(line) + 1

    def names(self) -> list[tuple[int, int]]:
        """Return (begin, end) of the names, in order."""
        runs = [self._pieces(match) for match in patterns.RUN.finditer(self.text)]
        parts = ((run[0].begin, piece.end) for run in runs for piece in run[1:])  # "Ada Oakes" of "Ada Oakes Group"
        firms = {self.text[begin:end] for begin, end in parts if patterns.FIRM_BEHIND.match(self.text, end, end + 20)}
        self._leave_out(runs, {firm for firm in firms | self.employers if not self._is_person(firm)})
        found = [name for run in runs for name in self._in_run(run)]
        behind = {of.end(): ")" * ("(" in of[0]) for each in found if (of := patterns.OF.match(self.text, each.end))}
        inside = {each for each in found if self.text.startswith(behind.get(each.begin, "\0"), each.end)}
        persons = {each.words for each in found if each.begin not in behind}
        self._leave_out(runs, {self.text[each.begin : each.end] for each in inside if each.words not in persons})
        found = [each for each in found if each.begin not in self.firms]
        sure = [each for each in found if each.evidence >= STRONG_ENOUGH]
        for cells in self.cells.values():
            named = [cell for cell in cells if any(cell[0] <= name.begin < cell[1] for name in sure)]
            if 1 < len(named) >= len(cells) / 2:  # a column of persons
                for begin, end in cells:
                    self._expect(begin, end, 3)
        edges = {each.begin for each in found}, {each.end for each in found}
        beside = [name for run in runs for name in self._in_run(run, edges)]
        found, listed = [*found, *beside, *self._inverted(runs)], list(self._listed())
        whole = (n for n in found if not any(n.begin < each.begin < n.end < each.end for each in listed))
        begun = {name.begin: name for name in [*whole, *listed]}
        spans = _apart((name.begin, name.end) for name in begun.values())
        runs = [[piece for piece in run if piece.begin not in self.firms] for run in runs]
        again = known_again(self.text, runs, [begun[begin] for begin, _ in spans], self.expected, self._ordinary)
        return _apart(span for span in {*spans, *again, *self.users} if span[0] < self.length)

    def _leave_out(self, runs: list[list[Piece]], firms: Collection[str]) -> None:
        """Keep the words of firms, wherever they stand, from being parts of names."""
        for run in runs if firms else ():
            for first, last in combinations_with_replacement(run, 2):
                if self.text[first.begin : last.end] in firms:
                    self.firms.update(range(first.begin, last.end))

    def _is_person(self, said: str) -> bool:
        """Return whether words stand where a person is expected, or behind a title: "Laura Berg Group Director"."""
        places = [match.start() for match in re.finditer(re.escape(said), self.text)]
        return any(self.expected[at] or patterns.TITLE.search(self.text[max(0, at - 20) : at]) for at in places)

    def _pieces(self, match: re.Match[str]) -> list[Piece]:
        given, surnames = known_names()
        pieces = list(patterns.PIECE.finditer(self.text, *match.span()))
        # In "von Ada Lovelace", the first word is a preposition.
        before = [(each[2] in given and each[2] not in surnames) or each[1].count(" ") == 1 for each in pieces]
        before[-1] = pieces[-1][2] in given and pieces[-1][2] not in surnames
        return [Piece(each.start(2 * own), each.end(), each[2]) for each, own in zip(pieces, before, strict=True)]

    def _is_ordinary(self, word: str) -> bool:
        word = word.removesuffix("'s").lower()
        return word not in WORDS["capital_particles"] and all(
            part in terms() or part in self.words or part.removesuffix("s") in terms() or patterns.NOUN.fullmatch(part)
            for part in re.split(r"[-'\u2019]", word)
            if len(part) > 1
        )

    def _in_run(self, run: list[Piece], edges: Edges = ((), ())) -> Iterator[Name]:
        """Yield the name in a run that has the most evidence; `edges` of other names are evidence too."""
        parts = [(first, last) for first in range(len(run)) for last in range(min(len(run), first + 5), first, -1)]
        judged = ((name, *part) for part in parts if (name := self._judged(run, *part, edges)))
        found = max(judged, key=lambda each: (each[0].evidence, each[0].end - each[0].begin), default=None)
        if found and found[0].evidence >= ENOUGH:
            best, begin, end = found
            while end < len(run) and self._goes_on(run[end], run[end].end):
                end += 1
            while begin and self._goes_on(run[begin - 1], run[begin].begin) and sound(run[begin - 1].word) > UNLIKELY:
                begin -= 1
            words = tuple(piece.word for piece in run[begin:end] if not piece.initial and piece.word not in SUFFIXES)
            yield from self._in_run(run[:begin], edges)
            yield Name(min(best.begin, run[begin].begin), run[end - 1].end, words, best.evidence)
            yield from self._in_run(run[end:], edges)

    def _goes_on(self, piece: Piece, begin: int) -> bool:
        """Return whether a word beside a name, and no preposition up to its `begin`, belongs to it."""
        by = patterns.BY.search(self.text[piece.end : begin])
        return not (by or piece.initial or self._ordinary(piece.word) or patterns.NO_NAME.fullmatch(piece.word))

    def _judged(self, run: list[Piece], first: int, last: int, edges: Edges) -> Name | None:
        """Return a part of a run as a name with its evidence, or None if it is none."""
        part = run[first:last]
        words = tuple(piece.word for piece in part if not piece.initial and piece.word not in SUFFIXES)
        begin, end = part[0].begin, part[-1].end
        titled = [word.title() if word.isupper() else word.removesuffix("'s") for word in words]
        if not words or self._is_other(part, words) or any(patterns.FIRM.fullmatch(each.word) for each in run[last:]):
            return None
        titles = (each for each in patterns.TITLE.finditer(self.text, max(0, begin - 30), begin) if each.end() == begin)
        title = [each for each in titles if words[0].isupper() or not each[0].isupper()]  # no "MS Intune"
        weight = min(self.expected[begin], self.expected[end - 1])
        plain = [self._ordinary(word) for word in words]
        particles = [word.lower() in WORDS["capital_particles"] for word in titled]
        given, family = (
            [not {word, word.split("-")[part], spelled(word).title()}.isdisjoint(known) for word in titled]
            for part, known in zip((0, -1), listed_names(), strict=True)
        )
        term = all(word.lower() in terms() for word in words)
        initial = any(each.initial for each in part)
        shown = bool(title) and family[-1] and title[0][0].strip(" .").lower() not in terms()
        shown |= weight > 1 and family[-1] and (initial or (given[0] and len(words) > 1))
        weak = bool(title) and title[0][0].endswith(" ") and title[0][0].strip().lower() in terms()  # "Arch", "Bay"
        if all(plain) and not shown and (term or weak or not title):
            return None
        named, before = title[0].start() if title else begin, self.text[max(0, begin - 60) : begin]
        role = patterns.ROLE.match(self.text, end) or patterns.IS(before) or patterns.DOES.match(self.text, end)
        first = part[0].initial and len(words) == 1 and (not begin or self.text[begin - 1] == "\n")
        if first and not family[-1] and any(f"\n{chr(ord(part[0].word[0]) + at)}. " in self.text for at in (-1, 1)):
            return None  # "A. Models" above "B. Drawings"
        pair = given[0] and (family[-1] or (len(words) == len(part) == 2 and not any(particles)))
        heading = begin in self.headings and not (weight or title or pair)
        heard = weight or title or given[0] or family[-1] or all(sound(word) > LIKELY for word in words)
        if heading or (not heard and (len(part[-1].word) == 1 or (len(words) > 1 and "".join(words).isupper()))):
            return None  # "Rev C", "Grid A", a heading
        known = [word for word, *listed in zip(words, given, family, strict=True) if any(listed)]
        brief = [word.isupper() and len(word) < 5 and word not in known for word in words]
        if any(brief) and len(words) > 1 and not (title or weight > 2 or all(map(str.isupper, words))):
            return None  # "Price IFC", "Report QA"
        evidence = (3 - 2 * weak) * bool(title) + weight
        if len(part) == 1:
            heard = weight and len(titled[0]) > 4 and sound(titled[0]) > LIKELY and self._stands_alone(begin, end)
            short = words[0].isupper() and (len(words[0]) < 4 or patterns.NO_NAME.fullmatch(words[0]))  # "MOA", "FAIA"
            expected = weight > 0 and (weight == SIGNED or given[0] or family[0] or bool(heard))
            lone = 0 if short or plain[0] else self._lone(run, first, weight, given[0], expected, edges)
            return Name(named, end, words, evidence + lone if lone or (title and not short) else 0)
        if title and any(plain[1:]) and not family[-1]:
            return None
        evidence += (1 if plain[0] else 2) * given[0] * (len(words) > 1) + (1 if plain[-1] else 2) * family[-1]
        unknown = [at for at, known in ((0, given[0]), (-1, family[-1])) if not (known or plain[at] or particles[at])]
        sounds = [2 * UNLIKELY if words[at].isupper() and len(words[at]) < 5 else sound(words[at]) for at in unknown]
        evidence += sum(each > LIKELY for each in sounds) + self._stands_alone(begin, end)
        evidence += any(not self.letters.issuperset(words[at].lower()) for at in unknown)
        evidence += 2 * (len(words[-1]) > 3 and spelled(words[-1]) in self.accounts)
        evidence -= not weight and last < len(run) and not run[last].initial and self._ordinary(run[last].word)
        evidence -= 2 * (not (weight or title) and any(map(patterns.ARTICLE.search, (before, f"{words[0]} "))))
        evidence -= sum(plain[1:-1]) + (plain[-1] and not (family[-1] and (given[0] or weight)))
        if not any(plain):
            evidence += 2 * bool(patterns.REACHED.match(self.text, end))
            evidence += 2 * self._beside(begin, end, edges)
            evidence += not weight and bool(sounds) and sum(sounds) > ENOUGH_SOUND * len(sounds)
            evidence += bool(weight or role or (given[0] and not particles[0]) or min(sounds, default=0) > UNLIKELY)
        shown_by = patterns.INITIALS_BEFORE.search(before) or patterns.INITIALS_BEHIND.match(self.text, end)
        if shown_by and (weight or title or given[0] or family[-1]):
            evidence += 2 * (shown_by[1].upper() == letters(" ".join(words)).upper())
        if role or patterns.BY.search(before):
            evidence += 2 * (not any(plain) or (given[0] and not (plain[0] and plain[-1])))
        elif not (weight or title or given[0] or self._beside(begin, end, edges)):
            evidence -= not self._stands_alone(begin, end)
        return Name(named, end, words, evidence + 2 * (initial and not plain[-1]))

    def _lone(self, run: list[Piece], at: int, weight: int, given: bool, known: bool, edges: Edges) -> int:
        """Return what speaks for the one word at a place of a run: it acts as persons do, or stands in their list."""
        begin, end = run[at].begin, run[at].end
        before = self.text[max(0, begin - 60) : begin]
        beside = "\n" not in before[-1:] + self.text[end : end + 1] and self._beside(begin, end, edges)
        called = TELEPHONE in self.text[end : end + 7] or before.endswith(f"{TELEPHONE} (")
        acts = beside or called or patterns.IS(before) or patterns.DOES.match(self.text, end)
        acts = acts or patterns.ASKED.search(before)
        whole = at + 1 == len(run) and not (at and not self._ordinary(run[at - 1].word))
        if given and whole and acts and (beside or not before.endswith((" and ", "& "))):
            return ENOUGH
        return int(known or (weight > 2 and beside))

    def _is_other(self, part: list[Piece], words: tuple[str, ...]) -> bool:
        """Return whether words are a firm, a place or a title by their form, or no whole name."""
        begin, following = part[0].begin, self.text[part[-1].end : part[-1].end + 30]
        return bool(
            (patterns.FIRM.match(following.lstrip(" ")) and following.startswith(" "))
            or begin in self.firms
            or any(map(patterns.NO_NAME.fullmatch, words[1:]))
            or (self._ordinary(words[-1]) and following.startswith(":"))
            or (patterns.WEAK.fullmatch(" ".join(words)) and len(words) > 1)
            or (patterns.PLACE(f"{words[0]} ") and not part[0].initial)
            or patterns.PLACE(self.text[max(0, begin - 30) : begin])
        )

    def _stands_alone(self, begin: int, end: int) -> bool:
        """Return whether nothing else stands in a line, an item of a list or a cell."""
        before, after = self.text[max(0, begin - 5) : begin].rstrip(" -"), self.text[end : end + 3].lstrip(" ")
        return before.endswith(("|", "\n", ":")) and (not after or after[0] in "|\n")

    def _beside(self, begin: int, end: int, edges: Edges) -> bool:
        """Return whether another name stands before or after, in a list in which a firm may stand in brackets."""
        start, (begins, ends) = max(0, begin - 50), edges
        before = re.search(rf"{patterns.JOINED}$", self.text[start:begin])
        after = re.match(patterns.JOINED, self.text[end : end + 50])
        return bool((before and start + before.start() in ends) or (after and end + after.end() in begins))

    def _inverted(self, runs: list[list[Piece]]) -> Iterator[Name]:
        """Yield names such as "Lovelace, Ada"."""
        given_names, surnames = listed_names()
        begins = {piece.begin for run in runs for piece in run}
        for match in patterns.INVERTED.finditer(self.text):
            surname, given = match[1].split()[-1], match[2]
            known = given in given_names, surname.title() in surnames
            capitals = surname.isupper()
            shown = len(surname) > 4 and sound(given) > UNLIKELY if capitals else self.expected[match.start()] > 0
            before = self.text[max(0, match.start() - 2) : match.start()]
            first = known[1] or " " in match[1] or self.expected[match.start()] or patterns.FIRST.search(before)
            certain = shown or (known[0] and surname not in given_names and first) or (capitals and any(known))
            plain = given.isupper() or self._ordinary(given) or (self._ordinary(surname) and not all(known))
            if certain and match.start() in begins and not plain:
                yield Name(match.start(), match.end(3), (given, surname), STRONG_ENOUGH)

    def _listed(self) -> Iterator[Name]:
        """Yield where the text names one of the given persons, a surname before a given name or behind it."""
        for person in self.persons:
            *given, surname = re.sub("(.+), *(.+)", r"\2 \1", person).split()
            forms = written(person, " ".join([*given, surname]), f"{surname}, {' '.join(given)}")
            words = tuple(re.findall(WORD, patterns.TITLE.sub("", person)))
            evidence = STRONG_ENOUGH if words[1:] else ENOUGH  # initials, and one name, are looked for as they are
            yield from (Name(*match.span(), words, evidence) for match in forms.finditer(self.text))


def _apart(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans in order that do not overlap one before, the longer of those that begin alike."""
    kept: list[tuple[int, int]] = []
    for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or begin >= kept[-1][1]:
            kept.append((begin, end))
    return kept
