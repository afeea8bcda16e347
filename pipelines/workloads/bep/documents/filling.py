"""Fill a Word template: each text of a plan goes below the heading, or beside the label in a table, of the same field.

    python -m pipelines.workloads.bep.documents.filling template.docx plan.md filled.docx

The form's page downloads `plan.md`. Whatever else the template holds stays.
"""

import io
import re
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

from common.disk.files import write_whole
from common.errors import UserError
from models.plans.fields import field_of, significant
from pipelines.workloads.bep.documents.word import unpacked

LARGEST = 50_000_000  # bytes of an expanded template


def filled(template: bytes, plan: str) -> tuple[bytes, list[str]]:
    """Return the filled document, and the headings of the plan that the template has no place for."""
    import docx
    from docx.table import Table
    from docx.text.paragraph import Paragraph

    document = docx.Document(unpacked(template, LARGEST))
    parts = re.split(r"(?m)^#+ (.+)\n", plan)[1:]
    texts = {_topic(heading): (heading, text.strip()) for heading, text in zip(parts[::2], parts[1::2], strict=True)}
    blocks = [*document.iter_inner_content(), None]
    for block, below in pairwise(blocks):
        if isinstance(block, Table):
            for label, cell in (pair for row in block.rows for pair in pairwise(row.cells)):
                if not cell.text.strip():
                    cell.paragraphs[0].add_run(texts.pop(_topic(label.text), ("", ""))[1])
        elif (
            isinstance(block, Paragraph) and block.style is not None and (block.style.name or "").startswith("Heading")
        ):
            style = below.style if isinstance(below, Paragraph) and not below.text.strip() else None
            for line in reversed(texts.pop(_topic(block.text), ("", ""))[1].splitlines()):
                if line.strip():
                    block._element.addnext(document.add_paragraph(line.strip(), style)._element)
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue(), [heading for heading, _ in texts.values()]


def _topic(heading: str) -> str:
    return field_of(heading) or " ".join(sorted(significant(heading)))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        content, left = filled(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]).read_text(encoding="utf-8"))
        write_whole(Path(sys.argv[3]), content)
    except (UserError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        print(f"{' '.join(sys.argv[1:3])}: {error}", file=sys.stderr)
        sys.exit(2)
    print("\n".join(f"the template has no place for: {heading}" for heading in left))
