"""A small LLaVA in a folder, for the tests of this folder."""

import pytest

from tests import vlms


@pytest.fixture(scope="session")
def hub_folder(tmp_path_factory):
    """A small LLaVA in Hugging Face's layout: weights, tokenizer, image processor."""
    return tmp_path_factory.mktemp("hub") / vlms.save("llava", tmp_path_factory.mktemp("hub"))
