"""Run a command from any folder, as the scripts in pipelines/ do from the project's.

python -m pipelines train --workload cvrp
accelerate launch -m pipelines train --workload cvrp
five-workloads predict --workload cvrp customers.csv    # where the project is installed
five-workloads export onnx runs/cvrp/default
"""

import runpy
import sys
from difflib import get_close_matches
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
EXPORT = "export"


def commands() -> dict[str, Path]:
    """Return the script of each command."""
    found = {path.stem: path for path in sorted(FOLDER.glob("[!_]*.py")) if b"__name__ ==" in path.read_bytes()}
    return {**found, EXPORT: FOLDER.parent / "exporters" / "__main__.py"}


def main() -> None:
    """Run the command named by the first word with the words after it."""
    word = sys.argv[1] if len(sys.argv) > 1 else "--help"
    known = commands()
    if word in ("--help", "-h"):
        print(__doc__.replace("Run a command", f"Run a command ({', '.join(known)})", 1))
        return
    if word == "--version":
        from common.packages import version

        print(version())
        return
    if word not in known:
        near = get_close_matches(word, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        print(f"error: unknown command {word!r}; {hint}known commands: {', '.join(known)}", file=sys.stderr)
        sys.exit(2)
    sys.argv[:2] = [str(known[word])]
    sys.path.insert(0, "")  # each script replaces the first entry by the project's folder
    runpy.run_path(str(known[word]), run_name="__main__")


if __name__ == "__main__":
    main()
