"""Some 300 made plans, their names drawn by lists or written out, and how much of them masking finds.

    python -m tests.workloads.bep.documents.made_plans [held_out, fresh, later, sheets, latest, coin, unseen, apart,
        others, judge, first_firms, second_firms, third_firms, fourth_firms, fifth_firms, sixth_firms,
        seventh_firms, eighth_firms, ninth_firms, tenth_firms, eleventh_firms, twelfth_firms,
        thirteenth_firms, fourteenth_firms ... twenty_sixth_firms|all|counted] [--quiet] [--listed]

With --listed, masking is given what a list of the staff has: the persons' whole names, and what stands for them in one
word: initials, other codes, and logins. All are the 48 plans without coin and what follows it.

Each file was written before its names were looked for, and the rules were then mended by what they missed in it:
development.txt, then held_out.txt, then fresh.txt with eight plans and names of 24 more locales, then later.txt with
four, then sheets.txt: transmittals, minutes, matrices of responsibilities and contacts, and sign-offs in English,
German and French, drawn by chance and filled with names of 20 further locales. latest.txt, four plans with a hundred
names, was not looked at until apart.txt was written. coin.txt and unseen.txt are
six plans with 200 names, parted by a coin: rules were mended by coin.txt, and by latest.txt and unseen.txt later.
In apart.txt, eight plans, the persons are written out as plans name them, between «n: and ». So they are in others.txt,
28 plans by three hands who did not know the rules, which were mended by them afterwards, and in judge.txt, twelve plans
by a fourth hand, looked at when the rules for persons were done; those for addresses, numbers and clients were mended
by it. first_firms.txt to seventh_firms.txt have 84 documents by seven more hands, full of addresses,
telephones and numbers; each was scored before it was looked at, by rules that were mended by those before it.
eighth_firms.txt and ninth_firms.txt are eight plans of international firms, written before their author read the rules.
So were tenth_firms.txt and eleventh_firms.txt, four plans of firms of four countries: rules were mended by the two of
tenth_firms.txt only. twelfth_firms.txt and thirteenth_firms.txt, eight plans of firms of eight countries, came before
their author read the rules, too: rules were mended by the first, and of the second only its figures were looked at.
So it is with fourteenth_firms.txt and fifteenth_firms.txt, eight plans each in a manner of its own.
sixteenth_firms.txt to twenty_sixth_firms.txt are twelve or sixteen documents each by eleven hands who knew neither the
rules nor each other's plans. The weights of tagger.py are fitted to all files but the last five, which are only
counted; twenty_third_firms.txt to twenty_fifth_firms.txt have many codes, firms that are named like persons and unusual
addresses.
"""

import random
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from pipelines.workloads.bep.documents import cleaning

FOLDER = Path(__file__).with_name("plans")
SEED = 34
FIRMS = [path.stem for path in sorted(FOLDER.glob("*_firms.txt"))]
COUNTED = [f"twenty_{number}_firms" for number in ("second", "third", "fourth", "fifth", "sixth")]
KINDS = {"t": "telephone", "a": "address", "p": "project", "c": "client", "s": "site", "e": "email"}
EASTERN = {"zh", "ja_ko"}
TITLES = frozenset(
    [
        "Mr",
        "Fr",
        "Monsieur",
        "Dipl",
        "Mrs",
        "Ms",
        "Dr",
        "Prof",
        "Eng",
        "Ing",
        "Sh",
        "Arch",
        "Geom",
        "Frau",
        "Herr",
        "Mme",
        "Mevrouw",
        "De",
        "heer",
        "Pan",
        "Pani",
        "Dña",
        "Sheikh",
        "sig",
        "ra",
        "Mag",
        "Hr",
        "Encik",
        "mgr",
        "inż",
        "Dhr",
        "mevr",
        "Mevr",
        "Engr",
        *("Shri", "Smt", "Capt", "Alhaji", "Barrister", "Herrn", "MM", "Mmes", "Madame", "Miss", "Sra", "pan", "pani"),
        *(
            "DI",
            "BM",
            "Hofrat",
            "Fru",
            "Frk",
            "Mgr",
            "Polier",
            "Sr",
            "Bey",
            "Mdm",
            "Mallam",
            "Surv",
            "QS",
            "Chief",
            "Han\u0131m",
        ),
        *("Madam", "Mlle", "Doña", "Dona", "Srta", "Seu", "Rev", "Hj", "Hajah", "Puan", "Pak", "Ir", "Er", "Ar", "Zr"),
        *("Dott", "ssa", "geom", "Paní", "paní", "panem", "Nana"),
    ]
)
SLOT = re.compile(r"\[(\d+)(?: (\w))?\]|«(\w):([^»]*)»")


class Label(NamedTuple):
    line: int
    kind: str
    text: str


class Plan(NamedTuple):
    name: str
    text: str
    labels: list[Label]


def all_names(file: str = "names.txt") -> dict[str, list[str]]:
    """The names by locale; a surname may stand between slashes."""
    rows = (line.split(":") for line in (FOLDER / file).read_text(encoding="utf-8").splitlines())
    return {locale: [name.strip() for name in names.split(";")] for locale, names in rows}


def plain(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", text) if c.isascii() and c.isalpha()).lower()


def forms(name: str, locale: str) -> dict[str, str]:
    """How plans write a person: in full, by surname, by initials..."""
    if "/" in name:
        before, surname, after = (part.strip() for part in name.split("/"))
        return written(" ".join(f"{before} {surname} {after}".split()), before or after, surname)
    words = name.split()
    western = words[0] in {"Jason", "Michelle", "Vivian"} or locale not in EASTERN or name[0:3] in {"Hir", "Ken", "Nao"}
    if not western and words[0] in {"Ryo", "Ayumi", "Daisuke", "Shizuka", "Tetsuya", "Yuto", "Emi"}:
        western = True
    if not western:
        given, surname = " ".join(words[1:]), words[0]
    else:
        at = len(words) - 1
        while at > 1 and (
            words[at - 1][0].islower() or words[at - 1] in {"Al", "Bin", "Abu", "Ben", "Le", "Di", "De", "Lo", "St"}
        ):
            at -= 1
        given, surname = words[0], " ".join(words[at:])
        if at < len(words) and words[-1] in {"Jr"}:
            surname = words[1]
    return written(name, given, surname)


def written(name: str, given: str, surname: str) -> dict[str, str]:
    short = given if not given.endswith(".") else surname
    initials = given[0] + surname.split()[-1][0]
    return {
        "": name,
        "g": short,
        "s": surname,
        "C": name.upper(),
        "v": f"{surname}, {given}",
        "V": f"{surname.upper()}, {given}",
        "S": f"{given} {surname.upper()}",
        "F": f"{surname.upper()} {given}",
        "i": f"{given[0]}. {surname}",
        "k": initials.upper(),
        "u": plain(given)[0] + plain(surname),
        "e": f"{plain(given)}.{plain(surname)}",
    }


def plans(part: str) -> Iterator[Plan]:
    """The plans of a file or of all, filled with names; each name occurs in one plan."""
    if part == "all":
        for each in ("development", "held_out", "fresh", "later", "sheets", "latest"):
            yield from plans(each)
        return
    if part == "counted":
        for each in COUNTED:
            yield from plans(each)
        return
    if part == "sheets":
        yield from sheets()
        return
    if part in ("apart", "others", "judge", *FIRMS):
        for section in re.split(r"(?m)^=== ", (FOLDER / f"{part}.txt").read_text(encoding="utf-8"))[1:]:
            head, body = section.split("\n", 1)
            yield filled(head, body.strip("\n"), [])
        return
    generator = random.Random(SEED)
    alone = part in ("fresh", "later", "latest", "coin", "unseen")
    pools = all_names(f"{part}_names.txt" if alone else "names.txt")
    for names in pools.values():
        generator.shuffle(names)
    for file in [part] if alone else ["development", "held_out"]:
        whole = (FOLDER / f"{file}.txt").read_text(encoding="utf-8")
        for section in re.split(r"(?m)^=== ", whole)[1:]:
            head, body = section.split("\n", 1)
            number, *locales = head.split()
            chosen = []
            for index in range(max(25, *map(int, re.findall(r"\[(\d+)", body)))):
                usable = [each for each in locales[index % 3 :] + locales if pools[each]] or [
                    max(pools, key=lambda each: len(pools[each]))
                ]
                chosen.append(forms(pools[usable[0]].pop(), usable[0]))
            if file == part:
                yield filled(f"plan {number}", body.strip("\n"), chosen)


def sheets() -> Iterator[Plan]:
    """Sixteen plans of sheets drawn by chance: six in English, five in German, five in French, 25 names in each."""
    generator = random.Random(SEED)
    named = [forms(name, locale) for locale, names in all_names("sheet_names.txt").items() for name in names]
    generator.shuffle(named)
    whole = (FOLDER / "sheets.txt").read_text(encoding="utf-8")
    drawn = [section.split("\n", 1) for section in re.split(r"(?m)^=== ", whole)[1:]]
    for number, language in enumerate(["en", "de", "fr"] * 5 + ["en"]):
        people, used, bodies = named[25 * number :][:25], 0, []
        for body in generator.sample([body for head, body in drawn if head == language], 6):
            if used < 25:
                pieces = re.split(r"(?<=\[)(\d+)", body)
                places = [int(each) for each in pieces[1::2]]
                pieces[1::2] = [str((used + place - 1) % 25 + 1) for place in places]
                bodies.append("".join(pieces))
                used += max(places)
        yield filled(f"sheets {number + 1} {language}", "".join(bodies).strip("\n"), people)


def filled(name: str, body: str, chosen: list[dict[str, str]]) -> Plan:
    lines, labels = [], []
    for number, line in enumerate(body.split("\n")):

        def put(match: re.Match, number: int = number) -> str:
            text = match[4] if match[3] else chosen[int(match[1]) - 1][match[2] or ""]
            if match[2] != "e":  # an address of mail is masked as such
                labels.append(Label(number, KINDS.get(match[3], "person"), text))
            return text

        lines.append(SLOT.sub(put, line))
    return Plan(name, "\n".join(lines), labels)


def words(text: str) -> list[str]:
    return [word for word in re.findall(r"[^\W_]+", text) if len(word) > 1]


def staff(plan: Plan) -> set[tuple[str, str]]:
    """The persons of a plan as a list of the staff has them: whole names, and codes that are no part of one."""
    said = {each.text for each in plan.labels if each.kind == "person"}
    named = {each for each in said if len(whole := words(each)) > 1 and not TITLES.intersection(whole)}
    parts = {word.lower() for each in named for word in words(each)}
    codes = {
        each for each in said if " " not in each and words(each.lower()) and not parts.issuperset(words(each.lower()))
    }
    return {("name", each) for each in named | {each for each in codes if len(each) < 5 or not each.istitle()}}


def compared(plan: Plan, add: Collection[tuple[str, str]] = ()) -> tuple[Counter, list[str]]:
    """Counts of (kind, found|missed) and of (kind, right|wrong), and lines that say what was missed or wrong."""
    masked = cleaning.clean(plan.text, mask=True, names=True, add=add).masked
    counts: Counter = Counter()
    said = []
    lines = plan.text.split("\n")
    for number, line in enumerate(lines, 1):
        labelled = [label for label in plan.labels if label.line + 1 == number]
        here = [each for each in masked if each.line == number]
        covered = " ".join(each.text for each in here)
        for label in labelled:
            wanted = words(label.text) if label.kind != "telephone" else re.findall(r"\d+", label.text)
            found = all(
                word in (words(covered) if label.kind != "telephone" else re.findall(r"\d+", covered))
                for word in wanted
            )
            counts[label.kind, "found" if found else "missed"] += 1
            said += [] if found else [f"{plan.name} missed {label.kind} {label.text!r}: {line[:110]}"]
        for each in here:
            right = {word for label in labelled for word in words(label.text)}
            wrong = [word for word in words(each.text) if word not in right and word.rstrip(".") not in TITLES]
            kind = {"name": "person", "user": "person"}.get(each.kind, each.kind)
            if kind != "email" or any(label.kind == kind for label in plan.labels):
                counts[kind, "wrong" if wrong else "right"] += 1
                said += [f"{plan.name} wrong {each.kind} {each.text!r}: {line[:110]}"] if wrong else []
    return counts, said


def measured(part: str, listed: bool = False) -> tuple[dict[str, tuple[float, float, int]], list[str]]:
    """{kind: (precision, recall, labels)} over the plans of a part, and what was missed or wrong.

    `listed`: masking is given each plan's staff.
    """
    total: Counter = Counter()
    said: list[str] = []
    for plan in plans(part):
        counts, lines = compared(plan, staff(plan) if listed else ())
        total += counts
        said += lines
    shares = {}
    for kind in ("person", *KINDS.values()):
        found, missed, right, wrong = (total[kind, each] for each in ("found", "missed", "right", "wrong"))
        if found + missed:
            shares[kind] = right / max(1, right + wrong), found / (found + missed), found + missed
    return shares, said


if __name__ == "__main__":
    part = next((each for each in sys.argv[1:] if not each.startswith("--")), "development")
    shares, said = measured(part, "--listed" in sys.argv)
    if "--quiet" not in sys.argv:
        print("\n".join(said))
    for kind, (precision, recall, count) in shares.items():
        print(f"{kind:10} precision {precision:6.1%}  recall {recall:6.1%}  of {count}")
