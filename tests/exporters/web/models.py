"""Runs of small models that have a page, a family each."""

import json
import string
from pathlib import Path

import numpy as np
import torch

from models import io
from models.images.comparator import build
from models.market import candle_features
from models.market.pooled_experts import PooledExperts, PooledExpertsConfig
from models.plans import chains
from models.plans.char_lstm import PRESETS, CharLSTM
from models.plans.char_mixture import CharMixture, CharMixtureConfig
from models.plans.characters import Characters
from models.plans.lstm_network import CharLSTMConfig
from models.routing.config import RoutingConfig
from models.routing.policy import RoutingPolicy
from models.stories.tokens import END
from tests.models.images.comparator.small import SMALL, pictures
from tests.models.images.comparator.small import make as comparator
from tests.models.tiny import disturb, make, trained_tokenizer

LETTERS = string.ascii_letters + " .,#|'-\n"
TEXT = """# Roles

The information manager is responsible for the delivery of the plan. The team agrees the plan, the dates and the roles.
## Dates
The lead designer shares a model each week; the manager's review follows, and the team's answers.
"""
SHORT_STEP = 900_000  # ms


def documents() -> CharMixture:
    """A mixture of an LSTM with counts of TEXT, which it also stores."""
    torch.manual_seed(0)
    characters = Characters(LETTERS)
    tokens = np.array([2, *characters.encode(TEXT)])
    keys = chains.contexts(tokens, chains.classes_of(characters.texts))[1:, : chains.STORED]
    counts = chains.count(keys, tokens[1:], chains.counted(keys, tokens[1:]))
    sizes = {**PRESETS["default"], "width": 24, "embedding": 8, "layers": 2, "vocabulary": LETTERS}
    sizes |= {"rows": len(counts.keys), "entries": len(counts.tokens), "documents": {"roles.md": len(tokens) - 1}}
    model = CharMixture(CharMixtureConfig(**sizes)).eval()
    model.count(counts)
    model.text.copy_(torch.from_numpy(tokens[1:]))
    for table in model.weights():
        table.uniform_(0, 0.3)
    return model


def letters() -> CharLSTM:
    """An LSTM alone."""
    torch.manual_seed(0)
    return CharLSTM(CharLSTMConfig(**{**PRESETS["default"], "width": 24, "embedding": 8, "vocabulary": LETTERS})).eval()


def signals() -> PooledExperts:
    """Experts on the default features of one coin, none of which is idle."""
    torch.manual_seed(0)
    features = candle_features.NAMES
    scaler = {"mean": [0.01] * len(features), "std": [0.5] * len(features)}
    for name, (mean, std) in {"log_return_1": (0, 0.002), "volatility_50": (0.002, 0.001), "rsi_14": (50, 12)}.items():
        scaler["mean"][features.index(name)], scaler["std"][features.index(name)] = mean, std
    made = PooledExperts(
        PooledExpertsConfig(
            features=features,
            lookback=24,
            coins=("AAAUSDT",),
            scalers={"AAAUSDT": scaler},
            timeframe_ms=SHORT_STEP,
            width=6,
            rounds=4,
        )
    ).eval()
    with torch.no_grad():
        for tensor in (*made.parameters(), made.location, made.scale, made.trees.value):
            torch.nn.init.normal_(tensor, std=0.2)
        made.trees.left[:, 0], made.trees.right[:, 0] = 1, 2
        made.trees.feature[:, 0] = torch.arange(len(made.trees.feature)) % made.trees.inputs
    return made


def images() -> io.Model:
    """A comparator with references, whose scale is fitted."""
    model = disturb(comparator(references=40, attribute="value", size=32))
    model.reference_images.copy_(pictures(40, size=32))
    model.reference_scores.copy_(torch.arange(40))
    model.share[1:] = torch.tensor([-0.4, 0.3])
    model.fit_scale()
    return model


def both(kind: str = "siamese") -> io.Model:
    """A comparator of two attributes, of which the second has scores from 100 on."""
    torch.manual_seed(0)
    references = 40 if kind == "siamese" else 0
    each = [
        {"kind": kind, **SMALL, "size": 32, "references": references, "attribute": name} for name in ("gloss", "shape")
    ]
    model = build({"attributes": each}).eval()
    for turn, view in enumerate(model.views.values()):
        view.prior.copy_(100 * turn + torch.arange(len(view.prior)) ** 1.5)
        if references:
            view.reference_images.copy_(pictures(40, size=32).roll(turn, 0))
            view.reference_scores.copy_(torch.arange(40).roll(7 * turn) + 100 * turn)
        view.fit_scale()
    return model


def stories() -> io.Model:
    """A storyteller that hardly ever ends a story, which one of random weights may do before its first word."""
    model = make(tokenizer=trained_tokenizer(32), memory=(16, 64), counts=100)
    with torch.no_grad():
        model.output_bias[END] -= 8
    return model


def routes() -> RoutingPolicy:
    torch.manual_seed(0)
    return disturb(RoutingPolicy(RoutingConfig("gt", width=32, heads=4, layers=2))).eval()


MODELS = {"cvrp": routes, "tinystories": stories, "bep": documents, "crypto": signals, "lmol": images}


def run_of(workload: str, folder: Path) -> Path:
    """Save a workload's model as that of a run, with a report without a link."""
    run = folder / workload / "tiny"
    io.save(MODELS[workload](), run / "model" / "best")
    (run / "report.html").write_text('<p class="web" hidden><a href="exports/web/index.html">Try</a></p>')
    return run


def asked(page: Path, questions: list) -> list[str]:
    """Words of the command that asks a page's kernel."""
    path = page.with_name("questions.json")
    path.write_text(json.dumps(questions))
    return ["node", str(Path(__file__).with_name("ask.mjs")), str(page), str(path)]
