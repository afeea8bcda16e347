"""The process that those of a run's many models are forked from. It imports for all of them, once."""

import multiprocessing
import os
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = ("pipelines.engine.training", "datasets", "torch._dynamo")  # the last two are imported late otherwise


def start() -> BaseContext:
    """Start it if it does not run. Imports take seconds, here and there, so call it before those of your own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    # It looks for modules where a new interpreter would, and that is not where this project lies.
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in places:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, places)])
    forkserver.ensure_running()
    return context
