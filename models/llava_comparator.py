"""A vision-language model (LLaVA: Liu et al. 2023) as a comparator: it sees both images and is asked in words.

The answer is its logits of three words, First, Second and Similar, behind the prompt. With `lora` (Hu et al. 2022) the
base stays as it is but for low-rank adapters in the language model and for the projector, which goes on from where it
was trained. Only these are stored; the base is named, with its revision, or built anew from the config's seed.

Shapes: U images, P pairs, T tokens of an image, V channels of the vision tower, D of the language model.
"""

import dataclasses
import importlib.util
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import io
from models.comparator import Comparator, Question, pixels
from models.vision_tower import AT_ONCE as IMAGES_AT_ONCE
from models.vision_tower import Base, Sight, leave_out, normalisation, quietly, unchanged

ANSWERS = ("First", "Second", "Similar")
IMAGE = "<image>"
# The words of a model that is built from config, <image> among them.
PROMPT = f"<s> USER: {IMAGE} {IMAGE} which image ranks higher ? ASSISTANT:"
WORDS = ("<pad>", "</s>", *dict.fromkeys(PROMPT.split()), *ANSWERS)
ADAPTED = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"  # never the vision tower, whose features are kept
PROJECTOR = "multi_modal_projector"
# Sizes of published models, whose weights are random here: to measure speed and memory without a download.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "llava-1.5-7b": {
        "vision": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 336,
            "patch_size": 14,
        },
        "text": {
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 32064,
        },
    },
}
KEPT_AT_ONCE = 64  # pairs whose keys and values are held: those of a 7B model take 0.3 GB for each


@dataclass(frozen=True, kw_only=True)
class LlavaComparatorConfig(Question):
    """Which base and what of it trains; the sizes are of a base that is built here."""

    base: str = ""  # a folder or an id on the hub; "": built from the sizes below and the seed
    revision: str = ""  # of the base: the hub's commit, or the SHA-256 of a folder's weights
    lora: bool = False  # train adapters and the projector; without, all of a base that is built here
    pool: bool = False  # average each 2 x 2 of an image's tokens: a quarter of them
    four_bit: bool = False  # keep the base's weights in 4 bits (Dettmers et al. 2023); needs bitsandbytes and CUDA
    preset: str = "small"  # of a base that is built here: of the sizes below, or of one of PRESETS, in bfloat16
    width: int = 96
    layers: int = 3
    heads: int = 4
    patch: int = 4  # pixels a side
    seed: int = 0


class LlavaComparator(Comparator):
    """Asks a LLaVA model; raises ValueError for a base that is not there, has changed, or cannot answer."""

    family = "llava_comparator"

    def __init__(self, config: LlavaComparatorConfig):
        super().__init__(config)
        _check(config)
        self.built, self.prompt = True, PROMPT
        mean = std = (0.5,) * 3
        prompt, answers = [WORDS.index(word) for word in PROMPT.split()], list(map(WORDS.index, ANSWERS))
        if not config.base:
            network = _built(config)
        elif _is_ours(config.base):
            network, revision = _from_ours(config)
            self.config = dataclasses.replace(config, revision=revision)
        else:
            self.built = False
            network, self.prompt, prompt, answers, mean, std, revision = _from_hub(config)
            self.config = dataclasses.replace(config, revision=revision)
        settings = network.config
        skip = int(settings.vision_feature_select_strategy == "default")  # the class token comes first
        self.sight = Sight(settings.vision_config.image_size, mean, std, settings.vision_feature_layer, skip)
        ends = [i for i, token in enumerate(prompt) if token == settings.image_token_id]
        if len(ends) != 2:
            raise ValueError(f"{config.base}: its tokenizer does not know {IMAGE}, so it cannot be shown two images")
        pieces = (prompt[: ends[0]], prompt[ends[0] + 1 : ends[1]], prompt[ends[1] + 1 :])
        for name, ids in zip(("before", "between", "after", "answers"), (*pieces, answers), strict=True):
            self.register_buffer(f"ids_{name}", torch.tensor(ids, dtype=torch.long), persistent=False)
        self.frozen = config.lora
        self.network = _adapted(network) if config.lora else network
        # The class token's way out of the vision tower leads nowhere here.
        for name, parameter in self.network.named_parameters():
            if "post_layernorm" in name:
                parameter.requires_grad_(False)
        if config.lora:
            leave_out(self, "network")

    @property
    def base(self) -> nn.Module:
        """The `LlavaForConditionalGeneration`, with adapters in it if it has any."""
        return self.network.get_base_model() if self.config.lora else self.network

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether activations of the language model are computed again on the way back."""
        return self.base.is_activation_checkpointing

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, wanted: bool) -> None:
        if wanted:
            self.base.activation_checkpointing_enable()
        else:
            self.base.activation_checkpointing_disable()

    @property
    def unmergeable(self) -> str | None:
        """Why `save_merged` cannot be; None if it can."""
        if not self.config.lora:
            return "it has no adapters"
        if self.config.four_bit:
            return "its base is there in 4 bits only; train with model.four_bit=false"
        if self.config.pool:
            return "transformers' LLaVA does not average tokens as it does; train with model.pool=false"
        return None

    def describe(self) -> dict[str, Any]:
        """As of any comparator; and how the base is asked, for who does it without this package."""
        return {
            **super().describe(),
            "prompt": self.prompt,
            "label_ids": self.ids_answers.tolist(),
            "base": self.config.base,
            "revision": self.config.revision,
            "pool": self.config.pool,  # which transformers' own LLaVA does not do
        }

    def save_beside(self, folder: Path) -> list[str]:
        """Write the description, the tokenizer and image processor in `processor`, and adapters as peft's in `adapter`.

        What has been written is read again; RuntimeError if it is not the same.
        """
        names = super().save_beside(folder)
        with quietly():
            self.processor().save_pretrained(_empty(folder / "processor"))
        if self.config.lora:
            import peft

            self.network.save_pretrained(_empty(folder / "adapter"))
            stored = safetensors.torch.load_file(folder / "adapter" / "adapter_model.safetensors")
            _check_equal(stored, peft.get_peft_model_state_dict(self.network), "adapter")
        return names + [name for part in ("processor", "adapter") for name in _files(folder, part)]

    @torch.no_grad()
    def save_merged(self, folder: Path) -> tuple[list[str], float]:
        """Write the base with the adapters merged in, and its processor, as transformers reads them, into `merged`.

        It is read again; RuntimeError if it is not the same. Returns also the largest difference that merging makes to
        the logits of `example`, which is rounding. The model cannot be used afterwards.
        """
        from transformers import LlavaForConditionalGeneration

        expected, dtype = self(**self.example()), self.base.dtype
        merged = self.network.merge_and_unload().to(dtype)
        with quietly():
            merged.save_pretrained(_empty(folder / "merged"))
            self.processor().save_pretrained(folder / "merged")
            again = LlavaForConditionalGeneration.from_pretrained(folder / "merged", dtype=dtype)
        again = again.to(merged.device).eval()
        _check_equal(again.state_dict(), merged.state_dict(), "merged")
        self.network, self.config = again, dataclasses.replace(self.config, lora=False)
        return _files(folder, "merged"), float((self(**self.example()) - expected).abs().max())

    def processor(self) -> Any:
        """What makes a LLaVA's inputs from images and the prompt; images are scaled by it not quite as by `encode`."""
        from transformers import AutoProcessor

        if not self.built:
            return Base(self.config.base, self.config.revision).load(AutoProcessor)
        return _built_processor(self.base.config)

    def encode(self, images: Tensor) -> Tensor:
        """(U, T, V): what the vision tower makes of images (U, C, S, S), before the projector."""
        tower = self.base.model.vision_tower
        if not self.frozen:
            return self.sight(tower, pixels(images))
        with torch.no_grad():
            return torch.cat([self.sight(tower, part) for part in pixels(images).split(IMAGES_AT_ONCE)])

    def project(self, encoded: Tensor) -> Tensor:
        """(U, T or T / 4, D): images as tokens of the language model."""
        projector = getattr(self.base.model, PROJECTOR)
        # What trains on a base does so in float32, whatever the base's type.
        tokens = projector(encoded.to(torch.float32 if self.config.lora else self.base.dtype))
        if not self.config.pool:
            return tokens
        side = int(tokens.shape[1] ** 0.5)
        return F.avg_pool2d(tokens.transpose(1, 2).unflatten(2, (side, side)), 2).flatten(2).transpose(1, 2)

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Logits (P, 3) of the words First, Second and Similar behind the prompt, whose other logits are not made.

        Without gradients, what stands up to the end of the first image is read once for all pairs that begin with it.
        """
        if torch.is_grad_enabled():
            tokens = self.project(encoded).to(self.base.dtype)
            return self._ask(torch.cat([self._begin(tokens[first]), self._go_on(tokens[second])], 1))
        order, logits = first.argsort(stable=True), []
        for rows in order.split(KEPT_AT_ONCE):
            used, places = torch.cat([first[rows], second[rows]]).unique(return_inverse=True)
            tokens = self.project(encoded[used]).to(self.base.dtype)  # of a 7B model 5 MB an image: not of all at once
            one, other = places.chunk(2)
            heads, which = one.unique(return_inverse=True)
            begun = self.network(inputs_embeds=self._begin(tokens[heads]), logits_to_keep=1, use_cache=True)
            begun.past_key_values.batch_select_indices(which)
            logits.append(self._ask(self._go_on(tokens[other]), begun.past_key_values))
        return torch.cat(logits)[order.argsort()]

    def _begin(self, image: Tensor) -> Tensor:
        """Embeddings (P, ..., D) of the prompt up to the end of the first image (P, T, D)."""
        return torch.cat([self._words(self.ids_before, len(image)), image], 1)

    def _go_on(self, image: Tensor) -> Tensor:
        """Embeddings (P, ..., D) of the prompt from there on, with the second image (P, T, D)."""
        return torch.cat([self._words(self.ids_between, len(image)), image, self._words(self.ids_after, len(image))], 1)

    def _words(self, ids: Tensor, count: int) -> Tensor:
        return self.base.get_input_embeddings()(ids).expand(count, -1, -1)

    def _ask(self, inputs: Tensor, begun: Any = None) -> Tensor:
        """Logits (P, 3) behind embeddings (P, ..., D) that follow on what is in the cache `begun`, if any."""
        kept = {"use_cache": False} if begun is None else {"past_key_values": begun}
        logits = self.network(inputs_embeds=inputs, logits_to_keep=1, **kept).logits
        return logits[:, -1, self.ids_answers]


def _check(config: LlavaComparatorConfig) -> None:
    if config.base and not config.lora:
        raise ValueError(f"base {config.base!r} is given, so give lora=true too: of a base only adapters are trained")
    if config.four_bit and not config.base:
        raise ValueError("four_bit is for the weights of a base; give base, or four_bit=false")
    if config.four_bit and importlib.util.find_spec("bitsandbytes") is None:
        raise ValueError("four_bit needs the package bitsandbytes, which is not installed: pip install bitsandbytes")
    if config.channels not in (1, 3):
        raise ValueError(f"channels is {config.channels}; the vision tower takes 1 (grey) or 3 (red, green, blue)")
    for name in ("size", "width", "layers", "heads", "patch"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be 1 or more")
    if config.preset != "small":
        if config.preset not in PRESETS:
            raise ValueError(f"preset is {config.preset!r}; known presets: small, {', '.join(PRESETS)}")
        if config.base or not config.lora:
            raise ValueError(f"preset {config.preset!r} is a base for adapters: give lora=true, and no base beside it")
    if config.base or config.preset != "small":
        return
    if config.width % (2 * config.heads):
        raise ValueError(f"width {config.width} is not an even multiple of heads {config.heads}")
    step = config.patch * (2 if config.pool else 1)
    if config.size % step:
        raise ValueError(f"size {config.size} is not a multiple of {step} (patch {config.patch}, pool {config.pool})")


def _built(config: LlavaComparatorConfig) -> nn.Module:
    """A LLaVA with random weights, a function of the config alone."""
    from transformers import AutoModelForImageTextToText, CLIPVisionConfig, LlamaConfig, LlavaConfig

    preset = PRESETS.get(config.preset)
    if preset is None:
        shape = {
            "hidden_size": config.width,
            "intermediate_size": 2 * config.width,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
        }
        vision = {**shape, "image_size": config.size, "patch_size": config.patch}
        text = {**shape, "vocab_size": len(WORDS)}
    else:
        vision, text = preset["vision"], preset["text"]
    ids = {"pad_token_id": 0, "bos_token_id": WORDS.index("<s>"), "eos_token_id": 1}
    settings = LlavaConfig(
        vision_config=CLIPVisionConfig(**vision),
        text_config=LlamaConfig(**text, **ids, max_position_embeddings=4096),
        image_token_index=WORDS.index(IMAGE),
        image_seq_length=(vision["image_size"] // vision["patch_size"]) ** 2,
        vision_feature_layer=-2 if preset else -1,  # -2, as usual, would leave the last of few layers idle
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        dtype = torch.bfloat16 if preset else torch.float32
        return AutoModelForImageTextToText.from_config(settings, dtype=dtype, attn_implementation="sdpa")


def _built_processor(settings: Any) -> Any:
    """The processor of a model that is built here, whose words are all that its tokenizer knows."""
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


def _empty(folder: Path) -> Path:
    """The folder; ValueError if somebody's files are in it."""
    if folder.exists() and any(path.is_file() for path in folder.rglob("*")):
        raise ValueError(f"{folder} has files of no complete export; take them away, or export to another folder")
    return folder


def _files(folder: Path, part: str) -> list[str]:
    """Names, from `folder` on, of the files in its part."""
    return sorted(path.relative_to(folder).as_posix() for path in (folder / part).rglob("*") if path.is_file())


def _check_equal(stored: Mapping[str, Tensor], expected: Mapping[str, Tensor], part: str) -> None:
    different = sorted(stored.keys() ^ expected.keys())
    different += [name for name in stored.keys() & expected.keys() if not torch.equal(stored[name], expected[name])]
    if different:
        raise RuntimeError(f"what was written to {part} differs from the model in {different[0]}")


def pools(base: str) -> bool:
    """Whether a base averages tokens: one that was trained here may."""
    return _is_ours(base) and bool(json.loads((Path(base) / io.CONFIG).read_text())["config"].get("pool"))


def _is_ours(base: str) -> bool:
    """Whether a base is a model folder that `models.io` wrote."""
    path = Path(base) / io.CONFIG
    return path.is_file() and "family" in json.loads(path.read_text())


def _from_ours(config: LlavaComparatorConfig) -> tuple[nn.Module, str]:
    """The network of a model that was built here and trained, and the revision."""
    revision = unchanged(config.base, config.revision, [Path(config.base) / io.WEIGHTS])
    model = io.load(config.base)
    if not isinstance(model, LlavaComparator) or model.config.lora or model.config.size != config.size:
        raise ValueError(
            f"base {config.base} must be a llava that was trained in full on images of size {config.size}; "
            f"it is {model.config}"
        )
    return model.network, revision


def _from_hub(config: LlavaComparatorConfig) -> tuple:
    """Of a base in a folder in Hugging Face's layout or on the hub: the network, the prompt, its ids and those of the
    answers, mean and deviation of pixels, and the revision.
    """
    from transformers import AutoImageProcessor, AutoTokenizer, LlavaForConditionalGeneration

    base = Base(config.base, config.revision)
    if base.settings.model_type != "llava":
        raise ValueError(f"base {config.base} is a model of type {base.settings.model_type}; give one of type llava")
    revision = base.revision()
    tokenizer, processor = base.load(AutoTokenizer), base.load(AutoImageProcessor)
    network = base.load(
        LlavaForConditionalGeneration, dtype=base.dtype, attn_implementation="sdpa", **_quantized(config)
    )
    question = f"Which of the two images ranks higher in {config.attribute}: First, Second or Similar?"
    prompt = f"USER: {IMAGE}\n{IMAGE}\n{question} ASSISTANT:"
    answers = [tokenizer.encode(word, add_special_tokens=False)[0] for word in ANSWERS]
    if len(set(answers)) != 3:
        raise ValueError(f"base {config.base}: its tokenizer begins {', '.join(ANSWERS)} with the ids {answers}, alike")
    ids = tokenizer.encode(prompt)
    return network, prompt, ids, answers, *normalisation(processor), revision


def _quantized(config: LlavaComparatorConfig) -> dict[str, Any]:
    """Arguments of from_pretrained for weights in 4 bits."""
    if not config.four_bit:
        return {}
    from transformers import BitsAndBytesConfig

    if not torch.cuda.is_available():
        raise ValueError("four_bit needs a CUDA device; give four_bit=false")
    return {
        "device_map": {"": torch.cuda.current_device()},
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
            llm_int8_skip_modules=["vision_tower", PROJECTOR, "lm_head"],
        ),
    }


def _adapted(network: nn.Module) -> nn.Module:
    """The network with adapters and a copy of its projector to train, these in float32, and all else frozen."""
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(
        r=8,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=ADAPTED,
        modules_to_save=[PROJECTOR],
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        # peft asks transformers by a name that transformers is about to give up.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        adapted = get_peft_model(network, settings)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return adapted


def build(config: Mapping[str, Any]) -> LlavaComparator:
    """The model of a config as `models.io` reads it."""
    return LlavaComparator(io.config_from(LlavaComparatorConfig, config))
