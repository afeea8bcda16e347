"""Draw the pictures of README and docs from short runs of their own, into docs/pictures.

    python tests/pictures/make.py             # all of them; the same as `make pictures`
    python tests/pictures/make.py routes      # some of them
    python tests/pictures/make.py --list      # the commands behind each, which a caption can name

A run that is there already is drawn as it is; remove runs/WORKLOAD/picture to have it trained anew.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from common.disk import files
from exporters import to_site
from tests.pictures import cards, plots, stills
from tests.pictures.house import house
from tests.report.browser.driver import chromium

MOST_BYTES = 200_000
TRAIN = "python pipelines/train.py --workload {} --name picture hardware.threads=1 {}"
EVALUATE = "python pipelines/evaluate.py --workload {} --name picture"


@dataclass(frozen=True)
class Picture:
    """A picture: what is to be run for it, and the function that draws it."""

    draw: Callable[[Path], str | bytes]  # run folder -> SVG or PNG
    workload: str | None = None
    words: str = ""  # of its training
    ending: str = "svg"

    @property
    def run(self) -> Path:
        return ROOT / "runs" / str(self.workload) / "picture"

    @property
    def commands(self) -> list[str]:
        if self.workload is None:
            return []
        return [TRAIN.format(self.workload, self.words), EVALUATE.format(self.workload)]


def site(_: Path) -> bytes:
    """Draw the figures on the cards, and return a screenshot of the index of the models that ship."""
    stills.write()
    with tempfile.TemporaryDirectory() as folder:
        to_site.export_shipped(Path(folder, "site"))
        command = [chromium(), "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1280,960"]
        command += [f"--screenshot={folder}/site.png", Path(folder, "site/index.html").as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        return Path(folder, "site.png").read_bytes()


PICTURES = {
    "house": Picture(lambda _: house()),
    "site": Picture(site, ending="png"),
    "routes": Picture(
        plots.routes,
        "cvrp",
        "data.labels=0 training.imitation_steps=0 training.best_of=1 training.steps=300 training.checkpoint_steps=10"
        " training.keep_checkpoints=30 training.validation_steps=100",
    ),
    "images": Picture(plots.images, "lmol", "training.steps=300"),
    "coin": Picture(plots.coin, "crypto", "data.symbols=[AAAUSDT] training.epochs=3"),
    "plan": Picture(cards.plan, "bep", "training.steps=1000"),
    "story": Picture(lambda _: cards.story()),
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=", ".join(PICTURES))
    parser.add_argument("--list", action="store_true", help="print the commands behind the pictures and stop")
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.pictures if name not in PICTURES]:
        parser.error(f"no picture {', '.join(unknown)}; there are {', '.join(PICTURES)}")
    for name in args.pictures or PICTURES:
        picture = PICTURES[name]
        if args.list:
            print(f"{name}:", *picture.commands, sep="\n  ")
            continue
        if picture.workload and not (picture.run / "report.html").exists():
            run(picture.commands[(picture.run / "model/last").exists() :])
        drawn = picture.draw(picture.run)
        content = drawn if isinstance(drawn, bytes) else drawn.encode()
        if len(content) > MOST_BYTES:
            sys.exit(f"{name} has {len(content):,} bytes; a picture has at most {MOST_BYTES:,}")
        path = ROOT / "docs/pictures" / f"{name}.{picture.ending}"
        files.write_whole(path, content)
        print(f"{path.relative_to(ROOT)}: {len(content):,} bytes", flush=True)


def run(commands: Sequence[str]) -> None:
    """Run commands as a user types them; leave with the status of the first that fails."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in commands:
        print(command, flush=True)
        if status := subprocess.run(shlex.split(command), cwd=ROOT, env=environment).returncode:
            sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
