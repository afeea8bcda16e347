"""Makes pipelines/workloads/bep/documents/english.txt.xz: English words that are written in lower case.

    python -m tests.workloads.bep.documents.english_words DICT

DICT holds two files of Debian 12's packages wamerican and wbritish: american-english and british-english. They are
lists of SCOWL, the Spell Checker Oriented Word Lists, whose notice the file begins with.
"""

import lzma
import sys
from pathlib import Path

MADE = Path(__file__).parents[4] / "pipelines/workloads/bep/documents/english.txt.xz"
NOTICE = """\
# Words of SCOWL, the Spell Checker Oriented Word Lists. Copyright 2000-2011 by Kevin Atkinson.
# Permission to use, copy, modify, distribute and sell these word lists, the associated scripts, the output created
# from the scripts, and its documentation for any purpose is hereby granted without fee, provided that the above
# copyright notice appears in all copies and that both that copyright notice and this permission notice appear in
# supporting documentation. Kevin Atkinson makes no representations about the suitability of this array for any
# purpose. It is provided "as is" without express or implied warranty."""


def main(folder: Path) -> None:
    words = {word for path in folder.glob("*-english") for word in path.read_text(encoding="utf-8").split()}
    kept = sorted(word for word in words if word.islower() and word.isalpha() and word.isascii() and len(word) > 2)
    MADE.write_bytes(lzma.compress("\n".join([NOTICE, *kept]).encode("ascii"), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
