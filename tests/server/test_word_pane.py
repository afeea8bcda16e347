"""Word's task pane: its manifest, https, and clauses at the place of the cursor."""

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from models import io
from pipelines.server.app import PAGE
from tests import forked
from tests.exporters.web.models import MODELS
from tests.report.browser.driver import driven
from tests.server.load import serving
from tests.server.test_served_page import with_clause

SCHEMA = "{http://schemas.microsoft.com/office/appforoffice/1.1}"
# In this order, by Microsoft's schema of add-ins; the others are optional.
ELEMENTS = (
    "Id Version ProviderName DefaultLocale DisplayName Description IconUrl HighResolutionIconUrl SupportUrl "
    "Hosts Requirements DefaultSettings Permissions"
)


def test_the_manifest_is_one_of_a_task_pane_whose_files_the_server_has():
    manifest = ElementTree.parse(PAGE / "word.xml").getroot()
    assert manifest.tag == f"{SCHEMA}OfficeApp"
    assert " ".join(each.tag.removeprefix(SCHEMA) for each in manifest) == ELEMENTS
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", manifest.findtext(f"{SCHEMA}Id"))
    addresses = re.findall(r'"https://localhost:8443/(.*?)"', (PAGE / "word.xml").read_text())
    assert len(addresses) == 4
    assert all((PAGE / (name or "index.html")).is_file() for name in addresses)


@pytest.mark.exhaustive
def test_microsofts_package_reads_the_manifest():
    tool = shutil.which("office-addin-manifest")
    assert tool, "npm install -g office-addin-manifest"
    done = subprocess.run([tool, "info", PAGE / "word.xml"], capture_output=True, text=True, check=True)
    assert "Source Location: https://localhost:8443/word.html" in done.stdout
    assert "Permissions: ReadWriteDocument" in done.stdout


@pytest.fixture
def certificate(tmp_path):
    pair = [str(tmp_path / "localhost.crt"), str(tmp_path / "localhost.key")]
    words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run(
        ["openssl", "req", "-x509", *words, "-out", pair[0], "-keyout", pair[1]], check=True, capture_output=True
    )
    return pair


@pytest.mark.slow
def test_clauses_are_written_where_the_cursor_stands_over_https(tmp_path, certificate):
    io.save(with_clause(MODELS["bep"]()), tmp_path / "small")
    with serving([f"bep={tmp_path / 'small'}", "--certificate", *certificate], tmp_path) as port:
        found = driven("word.mjs", tmp_path, "word", f"https://127.0.0.1:{port}/")
    assert found["said"] == "Clash detection: click one to insert it"
    assert found["source"] == "plan.md, line 3: Clash detection"
    assert found["written"] == ["Plan", "Clash detection", "The cat checks the model with care."]
    assert found["silent"] == "Catering: nothing of yours fits"
    assert (found["wrong"], found["unexpected"]) == ("", [])
    assert found["faults"] == {"dark": [], "telephone": []}


@pytest.mark.slow
def test_what_is_no_certificate_is_refused(tmp_path):
    (tmp_path / "a").write_text("none")
    words = ["bep/bep-plans", "--port", "0", "--certificate", "a", "a"]
    done = forked.run([str(PAGE.parents[1] / "serve.py"), *words], tmp_path)
    assert done.returncode == 2
    assert "not a certificate and its key" in done.stderr
