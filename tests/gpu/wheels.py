"""Download what tests/gpu/figures.py needs on a GPU machine that has no network.

    python tests/gpu/wheels.py            # into .wheels, for Python 3.12 on x86-64 Linux
    python tests/gpu/wheels.py --python 3.11 --folder /media/stick/wheels

The machine is expected to bring what is large: torch, peft, accelerate, torch-geometric, pyarrow,
pandas, scikit-learn, scikit-image, matplotlib and tokenizers. Versions are those of requirements.txt. The folder is
ignored by git and holds at most 64 MiB.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 64 * 2**20
OURS = (
    *("pydantic", "pydantic_core", "datasets", "transformers", "pyvrp", "hygese", "vrplib", "openpyxl"),
    *("pypdf", "pyppmd", "python-docx", "threadpoolctl", "Faker"),
)
THEIRS = ("annotated-types", "typing-inspection", "dill", "multiprocess", "tzdata", "et-xmlfile")  # what those need
# RL4CO's needs, without experiment trackers; the last one has no wheel and is built here.
RL4CO = (
    *("rl4co==0.7.0", "torchrl==0.14.1", "tensordict==0.14.3", "pyvers", "hoptorch", "orjson"),
    *("hydra-core==1.3.2", "hydra-colorlog", "omegaconf==2.3.0", "colorlog", "pyrootutils", "python-dotenv"),
    *("robust-downloader", "einops", "lightning", "lightning-utilities", "torchmetrics"),
)
BUILT = ("antlr4-python3-runtime==4.9.3",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / ".wheels")
    parser.add_argument("--python", default="3.12", help="version of Python on the machine")
    args = parser.parse_args()
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    platforms = [f"--platform=manylinux_2_{number}_x86_64" for number in (34, 31, 28, 27, 17)]
    only = ["--only-binary=:all:", f"--python-version={args.python}", "--implementation=cp", *platforms]
    ours = [f"{name}=={pinned[name]}" for name in OURS]
    _pip("download", "--dest", str(args.folder), *only, *ours, *THEIRS, *RL4CO)
    _pip("wheel", "--wheel-dir", str(args.folder), *BUILT)
    size = sum(path.stat().st_size for path in args.folder.glob("*.whl"))
    print(f"{len(list(args.folder.glob('*.whl')))} wheels, {size / 2**20:.1f} MiB in {args.folder}")
    if size > MOST_BYTES:
        sys.exit(f"that is more than {MOST_BYTES / 2**20:.0f} MiB; leave something out")


def _pip(command: str, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", command, "--quiet", "--no-deps", *words], check=True)


if __name__ == "__main__":
    main()
