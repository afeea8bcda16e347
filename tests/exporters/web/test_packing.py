"""What pages carry, and which models have none; what kernels compute is compared in test_kernels.py."""

import base64
import gzip
import json
import re
from urllib.parse import unquote

import pytest

from exporters import __main__ as exporters
from exporters.web import packing
from models import io
from models.images.comparator import build
from tests import towers
from tests.exporters.commands import refusal
from tests.exporters.web.models import MODELS, run_of
from tests.models.hostile import folder_of
from tests.models.images.comparator.small import make as comparator
from tests.report.pages import Page


@pytest.mark.parametrize("workload", MODELS)
def test_a_page_carries_all_that_it_needs(workload, tmp_path, capsys):
    run = run_of(workload, tmp_path)
    exporters.export("web", run, "best", None)
    out = run / "exports/web"
    html = (out / "index.html").read_text()
    manifest = json.loads((out / "manifest.json").read_text())
    assert list(manifest["files"]) == ["index.html"]
    assert manifest["files"]["index.html"]["bytes"] == len(html.encode())
    page = Page(html)
    for tag, attributes, _ in page.elements:
        links = {name: attributes[name] for name in ("src", "href") if name in attributes}
        assert not {*links.values()} - {"data:,"}, tag  # an empty icon, or the browser asks for one
        assert not [name for name in attributes if name.startswith("on")], tag
    assert page.all("meta")[2]["content"].startswith("default-src 'none'")
    carried = json.loads(re.search(r'id="model">(.*?)</script>', html, re.DOTALL)[1])
    assert carried["expected"] == manifest["expected"]
    assert {name: len(gzip.decompress(base64.b64decode(text))) for name, text in carried["files"].items()} == manifest[
        "model_bytes"
    ]


def test_a_page_of_stories_begins_in_the_language_of_its_model(tmp_path):
    run = run_of("tinystories", tmp_path)
    (run / "config.yaml").write_text("evaluation: {prompts: ['']}")
    model = io.load(run / "model/best")
    model.beginning = "Es war einmal"
    assert packing.pack(model, run).about["prompt"] == "Es war einmal"
    (run / "config.yaml").write_text("evaluation: {prompts: [A prompt]}")
    assert packing.pack(model, run).about["prompt"] == "A prompt"


def test_two_pages_of_a_model_are_equal_and_the_report_links_to_its_own(tmp_path):
    run = run_of("cvrp", tmp_path)
    exporters.export("web", run, "best", tmp_path / "elsewhere")
    assert '<p class="web" hidden>' in (run / "report.html").read_text()
    exporters.export("web", run, "best", None)
    assert '<p class="web"><a href="exports/web/index.html">' in (run / "report.html").read_text()
    names = ("index.html", "manifest.json")
    assert [(tmp_path / "elsewhere" / name).read_bytes() for name in names] == [
        (run / "exports/web" / name).read_bytes() for name in names
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cnn_lstm", "models of the family 'cnn_lstm' have no page; those of tiny_transformer, routing,"),
        ("dgt", "a routing policy of kind 'dgt' has no page; train one with model.kind=gt"),
        ("texture", "a siamese of textures has no page"),
    ],
)
def test_a_model_without_a_page_is_refused_by_name(name, said, tmp_path, capsys, monkeypatch):
    folder_of(name, tmp_path / "run/model/best")
    assert said in refusal(capsys, monkeypatch, "web", tmp_path / "run")
    assert not (tmp_path / "run/exports/web").exists()


@pytest.mark.slow
def test_a_siamese_over_a_base_has_no_page(tmp_path):
    base = towers.save_tower("siglip", tmp_path / "base")
    io.save(build({"kind": "siamese", "size": 16, "width": 8, "base": base}), tmp_path / "run/model/best")
    with pytest.raises(ValueError, match="a siamese over a base has no page"):
        exporters.export("web", tmp_path / "run", "best", None)


def test_no_name_in_a_model_becomes_markup(tmp_path):
    hostile = "</script><img src=x onerror=alert(1)>"
    model = comparator(attribute=hostile)
    io.save(model, tmp_path / "lmol/<b>run/model/best")
    exporters.export("web", tmp_path / "lmol/<b>run", "best", None)
    page = Page((tmp_path / "lmol/<b>run/exports/web/index.html").read_text())
    assert page.all("img") == page.all("b") == []
    assert any(hostile in text for tag, text in page.texts if tag == "p")
    carried = json.loads(next(text for tag, text in page.texts if tag == "script"))
    assert carried["about"]["attribute"] == hostile


def test_other_features_than_the_default_ones_are_refused_by_name(tmp_path, capsys, monkeypatch):
    model = MODELS["crypto"]()
    object.__setattr__(model.config, "features", ("log_returns", "volatility"))
    with pytest.raises(
        ValueError, match="there is no feature log_returns, volatility here: your own, and those of other coins"
    ):
        packing.pack(model, tmp_path)


def test_a_run_of_many_models_has_a_page_of_links(tmp_path):
    run = tmp_path / "crypto/coins"
    for name in ("AAAUSDT", "odd <name>"):
        io.save(MODELS["crypto"](), run / "members" / name / "model/best")
    (run / "report.html").write_text('<p class="web" hidden></p>')
    said = exporters.export("web", run, "best", None).splitlines()
    assert said[-1] == f"{run / 'exports/web/index.html'}: links to 2 pages"
    page = Page((run / "exports/web/index.html").read_text())
    links = [attributes["href"] for attributes in page.all("a")]
    assert links == ["AAAUSDT/index.html", "odd%20%3Cname%3E/index.html"]
    assert ("a", "odd <name>") in page.texts
    assert all((run / "exports/web" / unquote(link)).is_file() for link in links)
    assert (run / "report.html").read_text() == '<p class="web"></p>'
