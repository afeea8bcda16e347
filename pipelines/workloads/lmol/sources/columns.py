"""The columns of a user's table: what each of them holds, as the config says or as it is usually called."""

import re
from collections.abc import Mapping, Sequence

from common.errors import UserError

# What a column holds, and its usual names, without case, spaces and signs; the first one present counts.
USUAL = {
    "image": (
        *("image", "img", "file", "filename", "imagename", "imagepath", "path", "name", "imageid", "photo", "distimg"),
    ),
    "score": ("score", "mos", "meanopinionscore", "dmos", "mean", "rating", "quality", "value", "averagerating"),
    "group": ("group", "scene", "reference", "refimg", "content", "subject"),
    "first": ("img1", "image1", "first", "left", "imagea", "a", "file1", "filename1"),
    "second": ("img2", "image2", "second", "right", "imageb", "b", "file2", "filename2"),
    "score1": ("score1", "firstscore", "mos1", "rating1"),
    "score2": ("score2", "secondscore", "mos2", "rating2"),
    "label": ("label", "answer", "choice", "preference", "preferred", "response", "winner", "better", "chosen"),
    "winner": ("winner", "better", "chosen", "won", "preferredimage"),
    "loser": ("loser", "worse", "rejected", "lost", "otherimage"),
    "tie": ("tie", "istie", "draw", "equal"),
    "rater": ("rater", "raterid", "user", "userid", "annotator", "observer", "worker", "workerid", "judge"),
    "std": ("std", "sd", "stddev", "standarddeviation", "mosstd", "scorestd", "sigma"),
    "count": ("count", "n", "votes", "numvotes", "numratings", "ratings", "voters", "ctotal"),
}
# The kinds of table, by the columns that each needs; the first that fits is taken.
LAYOUTS = {
    "scored pairs": ("first", "second", "score1", "score2", "label"),
    "pairs": ("first", "second", "label"),
    "choices": ("winner", "loser"),
    "images": ("image", "score"),
}
EXTRA = {
    "scored pairs": ("rater", "count"),
    "pairs": ("rater", "count"),
    "choices": ("tie", "rater", "count"),
    "images": ("group", "rater", "std", "count"),
}
NEEDED = (
    "image,score (and group, rater, std, count); img1,img2,label; winner,loser (and tie); or "
    "img1,img2,score1,score2,label"
)
ANSWERS = "answers are img1,img2,label; img1,img2,winner; or winner,loser (and tie)"
RENAMED = "rename them"  # where no config can name the columns
BY_CONFIG = (
    "other names are given as data.columns.image=NAME data.columns.score=NAME; of pairs, as data.columns.first=NAME "
    "data.columns.second=NAME data.columns.label=NAME"
)


def assigned(
    table: str, header: Sequence[str], given: Mapping[str, str] | None
) -> tuple[str, dict[str, str], list[str]]:
    """Return a table's layout, its columns by what they hold and notes on guesses; UserError for missing ones."""
    advice = f"{ANSWERS}; {RENAMED}" if given is None else f"it must have {NEEDED}; {BY_CONFIG}"
    given = given or {}
    for holds, column in given.items():
        if column not in header:
            raise UserError(
                f"data.columns.{holds}={column}: {table} has no such column; it has {', '.join(header) or 'none'}"
            )
    plain = {re.sub(r"[^0-9a-z]", "", column.lower()): column for column in reversed(header)}
    free = {name: column for name, column in plain.items() if column not in given.values()}
    guessed = {
        holds: next(free[name] for name in names if name in free)
        for holds, names in USUAL.items()
        if holds not in given and any(name in free for name in names)
    }
    found = {**guessed, **given}
    layout = next((name for name, needed in LAYOUTS.items() if all(holds in found for holds in needed)), None)
    if layout is None:
        columns = f"the columns {', '.join(header)}" if header else "no columns, as it is an empty file"
        raise UserError(f"{table} has {columns}; {advice}")
    used = {holds: found[holds] for holds in (*LAYOUTS[layout], *EXTRA[layout]) if holds in found}
    notes = [
        f"{holds} is read from the column {column!r}"
        for holds, column in used.items()
        if holds not in given and column not in (holds, USUAL[holds][0])  # a guess other than the documents' name
    ]
    ignored = [column for column in header if column not in used.values()]
    return layout, used, notes + ([f"not used: the columns {', '.join(ignored)}"] if ignored else [])
