"""The fields of the form, completed and suggested for, and figures of the completions."""

import re
from collections.abc import Sequence

from common import text
from common.foreign_text import to_csv
from common.plain import Plain
from models.plans.char_lstm import CharLSTM
from models.plans.char_mixture import CharMixture
from models.plans.characters import COPIED
from models.plans.fields import FIELDS
from pipelines.workloads.bep.config import Config
from pipelines.workloads.bep.documents.masking import EMAILS, TELEPHONES, URLS

# The beginnings of the fields that are completed: most of the others hold tables, or what these hold in part.
BEGINNINGS = {name: field.beginning for name, field in list(FIELDS.items())[:25]}
MASKED = (EMAILS, TELEPHONES, URLS)  # none of these is in training text, unless data.mask=false

Figures = dict[str, float | int | None]


def complete_fields(
    config: Config, model: CharLSTM, training_text: str, most_characters: int
) -> tuple[str, dict[str, Figures]]:
    """Complete the first fields at every temperature; return the texts as CSV, and figures by temperature.

    Copies are searched for in the last `most_characters` of the training text.
    """
    known, searched = set(text.words(training_text)), training_text[-most_characters:]
    limit = config.evaluation.characters
    rows, judged = [], {}
    for temperature in config.evaluation.temperatures:
        written = []
        # Each field has its own seed: from the same draws, all completions would be much alike.
        for seed, (name, prompt) in enumerate(BEGINNINGS.items(), config.seed):
            written.append(model.complete(prompt, limit, temperature, seed=seed % 2**32))
            rows.append((temperature, seed, name, prompt, written[-1]))
        judged[str(temperature)] = _judged(written, limit, known, searched)
    return to_csv(("temperature", "seed", "field", "prompt", "completion"), rows), judged


def suggest_fields(model: CharMixture) -> str:
    """Return, as CSV, the three best clauses for every field, with their places; a rank of 0 where none fits."""
    rows: list[tuple[Plain, ...]] = []
    for name, field in FIELDS.items():
        found = model.suggest(name)
        for rank, each in enumerate(found, 1):
            places = (each.document, each.heading, each.line, each.count)
            rows.append((name, field.question, rank, each.text, each.likelihood, *places))
        if not found:
            rows.append((name, field.question, 0, "", None, "", "", None, 0))
    names = ("field", "question", "rank", "suggestion", "likelihood", "document", "heading", "line", "projects")
    return to_csv(names, rows)


def _judged(written: Sequence[str], limit: int, known: set[str], searched: str) -> Figures:
    """Return figures of the completions of all fields."""
    found = [word for each in zip(BEGINNINGS.values(), written, strict=True) for word in whole_words(*each, limit)]
    characters = sum(map(len, written))
    together = "\0".join(written)  # no training text has NUL, so no copy spans two completions
    copied = int(text.copied_characters(together, searched, COPIED).sum())
    return {
        "known_words": text.known_share(found, known),
        "distinct_2": text.distinct(found, 2),
        "longest_copied_span": len(text.longest_copied_span(together, searched)),
        "copied_share": copied / characters if characters else None,
        "unmasked_strings": sum(len(pattern.findall(each)) for each in written for pattern in MASKED),
        "characters": characters,
    }


def whole_words(prompt: str, completion: str, limit: int) -> list[str]:
    """Return the words of a completion: the first with its beginning in the prompt, and none cut off by the limit."""
    begun = re.split(r"[\W\d_]", prompt)[-1]
    if len(completion) >= limit:
        completion = re.sub(r"[^\W\d_]+$", "", completion)
    begun = begun if re.match(r"[^\W\d_]", completion) else ""
    return text.words(begun + completion)
