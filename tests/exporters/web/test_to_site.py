"""The site of the models that ship: whole, small, relative, and readable in Chromium."""

import re

import pytest

from exporters import __main__ as exporters
from exporters import to_site
from models import io, shipped
from tests.exporters.web.models import MODELS
from tests.pictures import stills
from tests.report.browser.driver import driven


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with a small model of each workload, named as the one on the site."""
    folder = tmp_path_factory.mktemp("pretrained")
    for workload, make in MODELS.items():
        name = shipped.names(workload)[-1]
        io.save(make(), folder / name)
        (folder / name / "run.yaml").touch()
    return folder


@pytest.fixture
def models(small, monkeypatch):
    """Small models in place of those that ship."""
    monkeypatch.setattr(shipped, "FOLDER", small)


def test_a_site_has_a_card_and_a_page_for_each_workload_and_links_within_itself(models, tmp_path):
    out = tmp_path / "site"
    assert "5 models" in exporters.export("site", out, "best", None)
    index = (out / "index.html").read_text()
    links = re.findall(r'href="([^"]+)"', index)
    assert links == ["data:,", *(f"{workload}/index.html" for workload in to_site.SAID)]
    assert "src=" not in re.sub(r'src="data:image/png;base64,', "", index)
    assert "<script" not in index
    cards = index.split('<section class="card">')[1:]
    assert [bool(re.search(r"<figure><(svg|p|div) ", card)) for card in cards] == [True] * 5
    for workload in to_site.SAID:
        page = (out / workload / "index.html").read_text()
        assert '<a href="../index.html">' in page
        assert not re.search(r'(?:href|src)="(?!data:|\.\./index\.html")', page)
    assert (out / ".nojekyll").is_file()
    assert sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) <= to_site.MOST_BYTES


def test_a_site_is_written_over_an_earlier_one(models, tmp_path, monkeypatch):
    monkeypatch.setattr(to_site, "SAID", {"lmol": to_site.SAID["lmol"]})
    out = tmp_path / "site"
    said = exporters.export("site", out, "best", None)
    first = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (out / "lmol/index.html").write_text("of an older version")
    assert exporters.export("site", out, "best", None) == said
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == first


def test_a_folder_with_other_files_and_a_site_that_is_too_large_are_refused(models, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").touch()
    with pytest.raises(ValueError, match=r"holds files that are not a site's, such as thesis\.tex"):
        exporters.export("site", tmp_path / "mine", "best", None)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/index.html").write_text("my home page")
    for name in ("index.html", ".nojekyll"):  # which sites of the user's own have, too
        (tmp_path / "own" / name).touch()
        with pytest.raises(ValueError, match=r"own holds files that are not a site.s, such as .*; give another"):
            exporters.export("site", tmp_path / "own", "best", None)
    assert (tmp_path / "own/index.html").read_text() == "my home page"
    with pytest.raises(ValueError, match="takes the folder to write and no options"):
        exporters.export("site", tmp_path / "site", "best", tmp_path / "out")
    monkeypatch.setattr(to_site, "SAID", {"cvrp": to_site.SAID["cvrp"]})
    monkeypatch.setattr(to_site, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1,000"):
        exporters.export("site", tmp_path / "site", "best", None)


@pytest.mark.slow
@pytest.mark.parametrize("workload", to_site.SAID)
def test_the_figure_of_a_card_is_the_answer_of_the_model_that_ships(workload):
    name = shipped.names(workload)[-1]
    assert (to_site.STILLS / f"{name}.html").read_text() == stills.of(shipped.FOLDER / name)


@pytest.mark.slow
def test_the_site_of_what_ships_is_read_on_any_screen_without_a_fault_and_opens_at_once(tmp_path):
    out = tmp_path / "site"
    exporters.export("site", out, "best", None)
    found = driven("site.mjs", tmp_path, "site", out)
    assert found["unexpected"] == []
    assert {view: faults for view, faults in found["faults"].items() if faults} == {}
    assert {view: pixels for view, pixels in found["overflow"].items() if pixels > 0} == {}
    assert all("match PyTorch's" in proof for proof in found["proofs"].values())
    assert len(found["proofs"]) == 4 * len(list(out.glob("*/")))  # light, dark, two widths
