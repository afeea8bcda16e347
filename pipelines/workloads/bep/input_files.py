"""Texts to complete: lines of text files, and forms as JSON, `{"projectScope": "The", ...}`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from common.errors import UserError, as_user_error
from common.foreign_text import other_encoding
from common.input_files import Given, Inputs, each_file, lines_of, prompt
from common.plain import Plain
from models.plans.fields import FIELDS, field_of, fits
from models.plans.inputs import TextInput, TextSettings
from pipelines.workloads.bep.documents import filling


def read(paths: Sequence[Path]) -> Iterator[Given]:
    """Yield the lines of text files and the fields of forms, and of those in folders."""
    return each_file(paths, [".txt", ".json"], _texts)


def _texts(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    if (ending := path.suffix.lower()) in (".txt", ".md", ""):
        yield from lines_of(path, prompt)
        return
    if ending != ".json":
        way = 'give field=NAME or prompt="...", lines in a .txt or a form in a .json'
        learn = "To learn from documents: pipelines/train.py --workload bep data.sources=FOLDER"
        raise UserError(f"{path}: a document is no text to complete; {way}. {learn}")
    with as_user_error(f"{path}: this is not JSON: ", of=(ValueError, RecursionError)):
        form = json.loads(path.read_bytes().decode(other_encoding(path) or "utf-8-sig"))
    if not isinstance(form, dict):
        raise UserError(f'{path}: a form is an object, {{"projectScope": "the text so far", ...}}')
    for number, (field, text) in enumerate(form.items()):
        yield f"{path}:{field}", {"field": field, "prompt": text, "item": number}


def completed(given: Mapping[str, object]) -> Mapping[str, object]:
    """Return an input with the usual beginning of its field as prompt, if it has a field of the form and no prompt."""
    field = given.get("field")
    if given.get("prompt") or not isinstance(field, str):
        return given
    if (known := field_of(field)) is None:
        fit = dict(zip(FIELDS, fits([field])[0], strict=True))
        alike = {name: SequenceMatcher(None, field.lower(), one.label.lower()).ratio() for name, one in FIELDS.items()}
        near = ", ".join(sorted(FIELDS, key=lambda name: (fit[name], alike[name]), reverse=True)[:3])
        raise UserError(f"field {field!r} has no usual beginning, so give a prompt; the nearest: {near}")
    return {**given, "field": known, "prompt": FIELDS[known].beginning}


def about(models: Sequence[object]) -> dict[str, Plain]:
    """Return the usual beginnings of the form's fields, and their labels, groups and questions."""
    shown = ("label", "group", "question")
    form: dict[str, Plain] = {name: {key: vars(each)[key] for key in shown} for name, each in FIELDS.items()}
    return {"fields": {name: each.beginning for name, each in FIELDS.items()}, "form": form}


INPUTS = Inputs(
    input=TextInput,
    settings=TextSettings,
    read=read,
    line=prompt,
    completed=completed,
    served={"length": 1000, "document": 400_000},
    about=about,
    document=filling.exchanged,
)
