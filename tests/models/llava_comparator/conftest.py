"""A small LLaVA in a folder, for the tests of this folder."""

import pytest

from models.llava_comparator.config import WORDS
from tests.models.llava_comparator.tiny_llava import make


@pytest.fixture(scope="session")
def hub_folder(tmp_path_factory):
    """A small LLaVA in Hugging Face's layout: weights, tokenizer, image processor."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CLIPImageProcessor, LlavaProcessor, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("hub")
    words = [*WORDS, "<unk>", "Which", "of", "the", "two", "images", "higher", "in", "glow:", "or", "Similar?"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        extra_special_tokens={"image_token": "<image>"},
    )
    network = make().network
    network.resize_token_embeddings(len(words))
    network.save_pretrained(folder)
    LlavaProcessor(
        image_processor=CLIPImageProcessor(
            size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}, image_mean=[0.4] * 3, image_std=[0.3] * 3
        ),
        tokenizer=fast,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    return folder
