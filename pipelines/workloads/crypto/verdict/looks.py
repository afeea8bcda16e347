"""The ledger of looks at tests: every evaluation counts against all others of the same period."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from common.disk.files import read_json_lines, write_text
from common.disk.lock import held
from pipelines.workloads.crypto.config import Config
from pipelines.workloads.crypto.verdict.summary import Page

LEDGER = "looks.jsonl"  # beside the folders of prepared data


class Looks(NamedTuple):
    """How often a test was looked at."""

    evaluations: int
    family: int  # forecasts in all, one for each coin and setting


def look(config: Config, folder: Path, coins: Mapping[str, str], pages: Sequence[Page]) -> Looks:
    """Record a look at the tests in `pages`; return how many overlapped their period, this one included.

    `coins` maps all that were prepared together to the hash of their candles: a coin evaluated alone counts among them.
    The same settings and candles count once. A later test is a new one.
    """
    spans = [fold for page in pages for fold in page["folds"]]
    # What a forecast and its trades depend on, beside the candles.
    left_out = {"data": {"symbols", "folder"}, "model": {"coins", "fold"}, "training": {"refit"}, "evaluation": None}
    parts = {name: getattr(config, name).model_dump(mode="json", exclude=left) for name, left in left_out.items()}
    entry = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "runs": sorted({fold["member"] for fold in spans}),
        "settings": hashlib.sha256(json.dumps([config.seed, parts], sort_keys=True).encode()).hexdigest()[:16],
        "looked_at": [page["symbol"] for page in pages],
        "coins": dict(coins),
        "market": config.data.origin,
        "from_ms": min(fold["from_ms"] for fold in spans),
        "to_ms": max(fold["to_ms"] for fold in spans),
    }
    path = folder.parent / LEDGER
    with held(path.with_name(f".{LEDGER}.lock"), wait=True):
        known = [*read_json_lines(path), entry]
        write_text(path, "".join(json.dumps(each) + "\n" for each in known))
    of_market = (each for each in known if each["market"] == entry["market"])
    same = [each for each in of_market if each["from_ms"] <= entry["to_ms"] and entry["from_ms"] <= each["to_ms"]]
    return Looks(len(same), len({(each["settings"], hash) for each in same for hash in each["coins"].values()}))
