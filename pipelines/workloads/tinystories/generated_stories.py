"""Children's stories generated from a grammar, so that the first training run needs no network.

A story is a plot told beat by beat. For every beat one of several tellings is drawn; a telling names the slots of the
story in braces ({hero}, {Place} with a capital) and chooses between words in brackets ([big|small], also nested). Slots
are drawn once per story, so the hero, the thing, the place and the goal of the first lines come back in the last ones.
"""

import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("grammar.txt")  # its first lines explain the format
CHOICE = re.compile(r"\[([^\[\]]*)\]")
ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou]|honest)")  # the grammar has no word like "unicorn"
Table = tuple[list[str], list[list[str]]]  # names of slots, and rows with a field for each


@dataclass(frozen=True)
class Plot:
    """Beats, each a list of tellings; what the hero may learn; and the tables whose rows fill slots of this plot."""

    beats: list[list[str]]
    lessons: list[str]
    tables: list[Table]


@dataclass(frozen=True)
class Grammar:
    """Everything that stories are made of."""

    lists: dict[str, list[str]]  # by heading: "girls", "openings", ...
    synonyms: dict[str, str]  # phrase -> template that replaces it
    tables: list[Table]  # filled in every story, in this order
    plots: list[Plot]


class World(dict[str, str]):
    """The slots of one story. `{Elder}` is `{elder}` with a capital."""

    def __missing__(self, key: str) -> str:
        if (value := self[key[0].lower() + key[1:]] if key[0].isupper() else None) is None:
            raise KeyError(key)
        return value[0].upper() + value[1:]


def generate(seed: int, characters: int) -> Iterator[str]:
    """Yield different stories that together have at least `characters` characters.

    The result depends only on the arguments, and a larger `characters` only appends. A story has about 400 to 1000
    ASCII characters in one or more paragraphs, separated by single line ends.
    """
    rng = random.Random(seed)
    seen: set[bytes] = set()  # hashes, because the stories themselves may be too many to keep
    total = 0
    while total < characters:
        story = tell(rng)
        if (digest := hashlib.blake2b(story.encode(), digest_size=16).digest()) not in seen:
            seen.add(digest)
            total += len(story)
            yield story


def tell(rng: random.Random) -> str:
    """Return one story."""
    plot, lists = rng.choice(grammar().plots), grammar().lists
    world = cast(rng, plot)
    beats = [lists["openings"], lists["pastimes"], *plot.beats, lists["afterwards"], lists["endings"]]
    spoken = [text for beat in beats if (text := phrase(rng, world, rng.choice(beat)))]
    new_paragraph = rng.choice((0.0, 0.0, 0.2, 0.45))  # the chance that a beat begins one
    return spoken[0] + "".join(("\n" if rng.random() < new_paragraph else " ") + text for text in spoken[1:])


def cast(rng: random.Random, plot: Plot) -> World:
    """Draw who and what the story is about."""
    world = World()
    people = rng.random() < 0.6
    she = rng.random() < 0.5
    _character(rng, world, "", people, she)
    # Mostly of the other sex, so that "he" and "she" tell the two apart.
    _character(rng, world, "f", people, she if rng.random() < 0.25 else not she)
    world["hand"] = "hand" if people else "paw"
    lists = grammar().lists
    homes = [[home] for home in lists["homes of children" if people else "homes of animals"]]
    for names, rows in [*grammar().tables, (["home"], homes), *plot.tables]:
        _fill(rng, world, names, rng.choice(rows))
    spots = rng.sample(world["spots"].split(", "), 3)
    world.update(spot=spots[0], spot2=spots[1], spot3=spots[2])
    world["adj"] = rng.choice(world["adjs"].split(", "))
    _fill(rng, world, ["like", "like2", "like3"], rng.sample(lists["likes"], 3))
    world["lesson"] = phrase(rng, world, rng.choice(plot.lessons))
    return world


def _character(rng: random.Random, world: World, prefix: str, person: bool, she: bool) -> None:
    """Slots of the hero (prefix "") or the friend ("f"): name, kind, trait and pronouns."""
    lists = grammar().lists
    names = [name for name in lists["girls" if she else "boys"] if name != world.get("hero")]
    kinds = [kind for kind in lists["animals"] if kind != world.get("kind")]
    world["friend" if prefix else "hero"] = rng.choice(names)
    world[prefix + "kind"] = ("girl" if she else "boy") if person else rng.choice(kinds)
    world[prefix + "trait"] = rng.choice(lists["traits"])
    forms = ("she", "her", "her", "herself") if she else ("he", "him", "his", "himself")
    world.update(zip((prefix + "he", prefix + "him", prefix + "his", prefix + "himself"), forms, strict=True))


def _fill(rng: random.Random, world: World, names: list[str], row: list[str]) -> None:
    for name, template in zip(names, row, strict=True):
        world[name] = phrase(rng, world, template)


def phrase(rng: random.Random, world: World, template: str) -> str:
    """Make the choices of a template, fill its slots, and turn "a" into "an" before a vowel."""
    template = _with_synonyms(template)
    while "[" in template:
        template = CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)
    return ARTICLE.sub(r"\1n ", " ".join(template.format_map(world).split()))


@cache
def _with_synonyms(template: str) -> str:
    for words, choice in grammar().synonyms.items():
        template = template.replace(words, choice)
    return template


@cache
def grammar() -> Grammar:
    """Parse grammar.txt."""
    lists: dict[str, list[str]] = {}
    tables: list[Table] = []
    plots: list[Plot] = []
    for heading, beats in _sections(FILE.read_text(encoding="ascii")):
        kind, _, names = heading.partition(": ")
        if kind == "plot":
            plots.append(Plot(beats, [], []))
        elif kind == "lessons":
            plots[-1].lessons.extend(beats[0])
        elif kind == "slots":
            table = names.split(" / "), [row.split(" / ") for row in beats[0]]
            (plots[-1].tables if plots else tables).append(table)
        else:
            lists[heading] = beats[0]
    return Grammar(lists, dict(pair.split(" => ") for pair in lists.pop("synonyms")), tables, plots)


def _sections(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Headings with their entries, which are grouped by the blank lines between them."""
    for section in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        yield heading, [_entries(group) for group in body.strip("\n").split("\n\n")]


def _entries(group: str) -> list[str]:
    """Entries on one line each; an empty one is repeated until it makes up two thirds of them."""
    entries = [" ".join(entry.split()) for entry in f"\n{group}".split("\n-")[1:]]
    return entries + [""] * (2 * len(entries) - 3) if "" in entries else entries
