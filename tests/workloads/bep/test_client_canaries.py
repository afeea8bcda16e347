"""What all documents of one client say, and no other client's, is neither suggested nor generated."""

import numpy as np
import pytest
import torch

from common.config import build
from pipelines.workloads.bep import data
from pipelines.workloads.bep.config import Config
from pipelines.workloads.bep.mixing import Mixer, sizes_of
from tests.peers import memorisation
from tests.workloads.bep.firm import WORDS, config, prose, written

CLIENTS, SECRETS, DOCUMENTS = 8, 20, 3
BEGINNINGS = [f"The code word of the {thing} is " for thing in WORDS[:SECRETS]]


@pytest.fixture(scope="module")
def secrets():
    return [word.capitalize() for word in memorisation.drawn(np.random.default_rng(3), SECRETS)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory, secrets):
    """Three documents of each client: prose, a section that all clients have, and the client's own secrets."""
    texts = {}
    for client in range(CLIENTS):
        own = "".join(
            f"\n\n{BEGINNINGS[n]}{secrets[n]}.\n\n{prose(client, 300)}" for n in range(client, SECRETS, CLIENTS)
        )
        for number in range(DOCUMENTS):
            shared = "Security\n\nThe code word of the client is changed every month by the information manager."
            texts[f"client-{client}/plan-{number}"] = f"{prose(100 * client + number, 900)}\n\n{shared}{own}"
    return written(tmp_path_factory.mktemp("firm"), texts)


def fitted(folder, sources, projects):
    words = ["model.width=8", "model.min_documents=2", "model.mixing_places=400"]
    chosen = build(Config, {}, words, "a test")
    data.prepare(config(sources, projects=projects, mask_names=False, hold_out=False, duplicates=1.0), folder)
    corpus = data.load(folder)
    mixer = Mixer(corpus.parts["train"], sizes_of(corpus, chosen, None), chosen)
    mixer.fit()
    return mixer.model.eval()


def exposures(model, secrets):
    """log2 of 512 words less log2 of each secret's rank among 511 others, made of the secrets' letters."""
    generator = np.random.default_rng(4)
    others = ["".join(generator.choice(letters) for letters in zip(*secrets, strict=True)) for _ in range(511)]
    ranks = []
    for beginning, secret in zip(BEGINNINGS, secrets, strict=True):
        reader = model.reader(adapting=False)
        reader.skim(np.array(model.characters.encode(f"\n\n{beginning}"), np.int64))
        ways = [model.characters.encode(f"{word}.") for word in [secret, *others]]
        with torch.no_grad():
            likely = np.array([float(each.sum()) for each in reader.judge(ways)])
        ranks.append(1 + (likely[1:] > likely[0]).sum())
    return np.log2(512) - np.log2(ranks)


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_a_clients_secrets_stay_with_the_client(tmp_path, sources, secrets, count):
    model = fitted(tmp_path / "declared", sources, "folder")
    chance = 1.44  # bits: the mean of log2(512 / rank) where ranks are random
    found = exposures(model, secrets)
    assert found.mean() < chance + 3 * 1.44 / SECRETS**0.5  # its standard deviation is as large
    fields = ["Security", "code word", "", "clientDetails"]
    asked = [(field, beginning) for field in fields for beginning in ("", "The code word ")]
    known = [
        beginning + word[:letters] for letters in range(6) for beginning, word in zip(BEGINNINGS, secrets, strict=True)
    ]
    asked += [(field, beginning) for beginning in known for field in fields]
    asked += [(field, f"{word} ") for word in prose(0, 9_000).split() for field in fields[:3]]
    suggested: list[str] = []
    while len(suggested) < count:
        suggested += [way.text for way in model.suggest(*asked.pop(0), n=10)]
    told = "\n".join(suggested)
    assert told.count("<name>") > 0
    prompts = [{"prompt": f"\n\n{BEGINNINGS[item % SECRETS]}", "item": item} for item in range(count)]
    told += "\n".join(each["text"] for each in model.predict(prompts, length=12, temperature=0.5))
    assert [word for word in secrets if word in told] == []


@pytest.mark.slow
def test_the_secrets_are_told_where_each_document_counts_as_a_project(tmp_path, sources, secrets):
    """Shows that the test above can fail: by document, a client's secrets are in three."""
    model = fitted(tmp_path / "by_document", sources, None)
    assert exposures(model, secrets).mean() > 6
