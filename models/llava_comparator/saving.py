"""Files that an export writes beside the weights of a LLaVA comparator, and checks of what was written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.llava_comparator.config import IMAGE, WORDS


def built_processor(settings: Any) -> Any:
    """Return the processor of a model that is built here, whose tokenizer knows WORDS and nothing else."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CLIPImageProcessor, LlavaProcessor, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        extra_special_tokens={"image_token": IMAGE},
    )
    side = settings.vision_config.image_size
    return LlavaProcessor(
        image_processor=CLIPImageProcessor(
            size={"shortest_edge": side},
            crop_size={"height": side, "width": side},
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
        ),
        tokenizer=tokenizer,
        patch_size=settings.vision_config.patch_size,
        vision_feature_select_strategy=settings.vision_feature_select_strategy,
        num_additional_image_tokens=1,
    )


def empty(folder: Path) -> Path:
    """Return the folder; ValueError if there are files in it that might be somebody else's."""
    if folder.exists() and any(path.is_file() for path in folder.rglob("*")):
        raise ValueError(f"{folder} has files that no complete export wrote; remove them, or export to another folder")
    return folder


def files_of(folder: Path, part: str) -> list[str]:
    """Return the names of the files below `folder`/`part`, relative to `folder`."""
    return sorted(path.relative_to(folder).as_posix() for path in (folder / part).rglob("*") if path.is_file())


def check_equal(stored: Mapping[str, Tensor], expected: Mapping[str, Tensor], part: str) -> None:
    """Raise RuntimeError if the tensors read back from `part` are not exactly those expected."""
    different = sorted(stored.keys() ^ expected.keys())
    different += [name for name in stored.keys() & expected.keys() if not torch.equal(stored[name], expected[name])]
    if different:
        raise RuntimeError(f"the files written to {part} differ from the model in {different[0]}")
