"""Bases of vision-language comparators: from the hub, our own folders or a config.

An image's features are cached as inputs of the projector, the part between vision tower and language model that trains
with adapters. So each type of model names its projector's modules, and how their outputs become the tokens that its own
`get_image_features` returns.
"""

import contextlib
import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from common.disk.files import read_json, write_json
from common.errors import as_user_error
from models import io, loading_limits
from models.images.vision_tower import Base, quietly, unchanged
from models.images.vlm_comparator.built import built, processor_for
from models.images.vlm_comparator.config import ATTENTION, PAIRS, VlmComparatorConfig

if TYPE_CHECKING:
    from transformers import ProcessorMixin

LANGUAGE_MODEL = r".*\.(language_model|text_model)\..*\."  # never the vision tower, whose features are kept


def _and_newline(model: nn.Module, tokens: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Append the learnt newline token: (U, T + 1, D); one of several images is not tiled."""
    newline = model.get_parameter("image_newline").to(tokens.dtype)
    return torch.cat([tokens, newline.expand(len(tokens), 1, -1)], 1)


def _tiled(model: nn.Module, tokens: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return tokens (U, T, D) of a whole image, then of its tiles, put together as the model does."""
    settings, pack = getattr(model, "config"), getattr(model, "pack_image_features")  # noqa: B009
    side = settings.vision_config.image_size // settings.vision_config.patch_size
    sizes = inputs["image_sizes"][:1].expand(len(tokens), -1)
    strategy = settings.vision_feature_select_strategy
    parts, newline = list(tokens.unflatten(1, (-1, side**2))), model.get_parameter("image_newline")
    packed: list[Tensor] = pack(parts, sizes, vision_feature_select_strategy=strategy, image_newline=newline)[0]
    return torch.stack(packed)


def _row_by_row(model: nn.Module, tokens: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Reorder tokens (U, T, D) from the tower's windows to rows."""
    from transformers.vision_utils import get_vision_window_index

    sizes = {name: getattr(model.visual, name) for name in ("spatial_merge_size", "window_size", "patch_size")}
    order, _ = get_vision_window_index(inputs["image_grid_thw"][:1], **sizes)
    return tokens[:, order.argsort().to(tokens.device)]


@dataclass(frozen=True)
class Family:
    """One type of vision-language model."""

    projectors: tuple[str, ...] = ("multi_modal_projector",)  # in the order of their calls; a list of modules as NAME.*
    # (model, a projector's tokens (U, T, D), inputs) -> tokens as `get_image_features` returns them
    arrange: Callable[[nn.Module, Tensor, Mapping[str, Tensor]], Tensor] = lambda model, tokens, inputs: tokens
    listed: bool = False  # its image features are a list of one tensor per image
    prompt: str = ""  # of a processor without chat template, with {question}
    ending: str = ""  # appended to the prompt by the processor


# By `model_type` of transformers' config. Features of projectors before the last go into layers of the language model
# (Meng et al. 2024, DeepStack).
FAMILIES = {
    "llava": Family(listed=True),
    "llava_next": Family(arrange=_tiled, listed=True),
    "llava_onevision": Family(arrange=_and_newline, listed=True),
    "qwen2_vl": Family(("visual.merger",), listed=True),
    "qwen2_5_vl": Family(("visual.merger",), _row_by_row, listed=True),
    "qwen3_vl": Family(("visual.deepstack_merger_list.*", "visual.merger"), listed=True),
    "idefics3": Family(("connector",), listed=True),
    "smolvlm": Family(("connector",), listed=True),
    "internvl": Family(),
    "paligemma": Family(prompt="<image><image>answer en {question}", ending="\n"),
    "gemma3": Family(),
}


def family_of(name: str, settings: object) -> Family:
    """Return the family of base `name` by its config; ValueError, naming the known ones, for others."""
    if (kind := getattr(settings, "model_type", type(settings).__name__)) not in FAMILIES:
        raise ValueError(f"base {name} is a model of type {kind}; give one of type {', '.join(FAMILIES)}")
    return FAMILIES[kind]


@dataclass
class LoadedBase:
    """A model of AutoModelForImageTextToText with its processor and family."""

    network: Any
    processor: "ProcessorMixin"
    family: Family
    ours: bool  # its vocabulary is WORDS
    revision: str

    @property
    def projectors(self) -> list[str]:
        """Names in `network.model` of the projector's modules, in the order of their calls."""
        names = []
        for name in self.family.projectors:
            parent, star, _ = name.partition(".*")
            inner = self.network.model.get_submodule(parent).named_children() if star else ()
            names += [f"{parent}.{child}" for child, _ in inner] if star else [name]
        return names


def load_base(config: VlmComparatorConfig) -> LoadedBase:
    """Load the config's base, or build it; ValueError if it is missing or does not fit."""
    new = loading_limits.for_built_base() if config.lora else contextlib.nullcontext()
    with loading_limits.paused() if config.base else new:
        if config.base and not is_ours(config.base):
            return _from_hub(config)
        network, revision = _from_ours(config) if config.base else (built(config), config.revision)
    settings: Any = network.config
    return LoadedBase(network, processor_for(settings), family_of(config.base, settings), True, revision)


def is_ours(base: str) -> bool:
    """Return True for a model folder that `models.io` wrote."""
    return "family" in read_json(Path(base) / io.CONFIG, dict)


def _from_ours(config: VlmComparatorConfig) -> tuple[nn.Module, str]:
    """Return the network of a model trained by this package, and its revision."""
    if io.described(Path(config.base))["config"].get("base"):  # which might be itself
        raise ValueError(f"base {config.base} has a base of its own; give a vlm that was trained whole")
    revision = unchanged(config.base, config.revision, [Path(config.base) / io.WEIGHTS])
    model = io.load(config.base)
    trained = model.config
    if not isinstance(trained, VlmComparatorConfig) or trained.lora or trained.size != config.size:
        wanted = f"a vlm that was trained whole on images of size {config.size}"
        raise ValueError(f"base {config.base} must be {wanted}; it is {trained}")
    if config.question != PAIRS and trained.question == PAIRS and trained.preset == "small":
        lacking = f"knows no words for levels, since it was trained with question={PAIRS}"
        raise ValueError(f"base {config.base} {lacking}; give one that was trained with question={config.question}")
    return model.get_submodule("network"), revision


def _from_hub(config: VlmComparatorConfig) -> LoadedBase:
    from transformers import AutoModelForImageTextToText

    base = Base(config.base, config.revision)
    family = family_of(config.base, base.settings)
    revision = base.revision()
    processor = load_processor(base)
    given = {"dtype": base.dtype, "attn_implementation": "sdpa", **_quantized(config, family)}
    return LoadedBase(base.load(AutoModelForImageTextToText, **given), processor, family, False, revision)


def load_processor(base: Base) -> "ProcessorMixin":
    """Return a base's processor without videos (torchvision's), scaling images by PIL: the same on all machines."""
    from transformers import AutoImageProcessor, AutoTokenizer, ProcessorMixin
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING, processor_class_from_name
    from transformers.video_processing_utils import BaseVideoProcessor

    tokenizer, images = base.load(AutoTokenizer), base.load(AutoImageProcessor, backend="pil")
    settings, _ = ProcessorMixin.get_processor_dict(base.name, **base.given)
    name = settings.get("processor_class")
    kind: Any = processor_class_from_name(name) if name else PROCESSOR_MAPPING[type(base.settings)]
    accepted = inspect.signature(kind).parameters
    given = {key: value for key, value in settings.items() if key in accepted}
    given |= {"tokenizer": tokenizer, "image_processor": images}
    videos = None
    with as_user_error(f"base {base.name}: its processor cannot be made (", ")", (ImportError, TypeError, ValueError)):
        if "video_processor" in accepted:
            given["video_processor"] = None
            with contextlib.suppress(OSError), quietly():  # of a base without any
                videos = BaseVideoProcessor.get_video_processor_dict(base.name, **base.given)[0]
        processor: ProcessorMixin = without_videos(kind, videos)(**given)
    processor.chat_template = processor.chat_template or tokenizer.chat_template
    return processor


def without_videos(kind: "type[ProcessorMixin]", videos: Mapping[str, object] | None = None) -> type:
    """Return a subclass of a processor without its part for videos, whose settings are still saved."""
    parts = [part for part in kind.get_attributes() if part != "video_processor"]

    def save_pretrained(self: "ProcessorMixin", save_directory: Path) -> None:
        kind.save_pretrained(self, save_directory)
        if videos:
            write_json(Path(save_directory) / "video_preprocessor_config.json", videos)

    changed = {"get_attributes": classmethod(lambda cls: parts), "save_pretrained": save_pretrained}
    return type(kind.__name__, (kind,), changed)


def _quantized(config: VlmComparatorConfig, family: Family) -> dict[str, object]:
    """Return arguments of from_pretrained for weights in 4 bits."""
    if not config.four_bit:
        return {}
    from transformers import BitsAndBytesConfig

    if not torch.cuda.is_available():
        raise ValueError("four_bit needs a CUDA device; set four_bit=false")
    kept = ["vision_tower", "vision_model", *(name.split(".")[0] for name in family.projectors), "lm_head"]
    nf4: dict[str, Any] = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    four_bit = BitsAndBytesConfig(**nf4, bnb_4bit_compute_dtype=torch.bfloat16, llm_int8_skip_modules=kept)
    return {"device_map": {"": torch.cuda.current_device()}, "quantization_config": four_bit}


def adapted(base: LoadedBase, config: VlmComparatorConfig) -> nn.Module:
    """Return the network with adapters and a copy of its projector, both trainable in float32; all else is frozen."""
    from peft import LoraConfig, get_peft_model

    alpha: Any = config.lora_alpha  # peft takes fractions, although it is annotated as int
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=alpha,
        lora_dropout=config.lora_dropout,
        target_modules=f"{LANGUAGE_MODEL}({'|'.join(_targets(base, config))})",
        modules_to_save=base.projectors,
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        # peft reads an attribute of transformers that is deprecated.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        adapted = get_peft_model(base.network, settings)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return adapted


def _targets(base: LoadedBase, config: VlmComparatorConfig) -> Sequence[str]:
    """Return the names of the layers that get adapters; ValueError for one that the language model lacks."""
    linear = [name for name, module in base.network.named_modules() if isinstance(module, nn.Linear)]
    present = sorted({name.rpartition(".")[2] for name in linear if re.match(LANGUAGE_MODEL, name)})
    wanted = tuple(config.lora_targets) or tuple(name for name in ATTENTION if name in present)
    if (missing := [name for name in wanted if name not in present]) or not wanted:
        none = f"the language model of base {config.base!r} has no such layers"
        raise ValueError(f"lora_targets {missing or list(wanted)}: {none}; it has {', '.join(present)}")
    return wanted
