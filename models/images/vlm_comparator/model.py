"""The vision-language comparator: both images in one prompt, and the logits of three words after it."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from common import noise
from common.machine import free_memory_bytes
from common.plain import Plain
from models.images.comparator.interface import Comparator, pixels
from models.images.vision_tower import AT_ONCE as IMAGES_AT_ONCE
from models.images.vision_tower import layers_of, leave_out, quietly
from models.images.vlm_comparator import bases
from models.images.vlm_comparator.built import pixel_values
from models.images.vlm_comparator.config import LEVELS, PAIRS, VlmComparatorConfig, check
from models.images.vlm_comparator.prompt_tokens import Prompt, processed

KEPT_AT_ONCE = 64  # most pairs whose keys and values are held at once
KEPT_SHARE = 0.4  # and the most of the free memory for them: those of a pair take 0.6 GiB in a 7B model


class VlmComparator(Comparator):
    """Comparator that asks a vision-language model; ValueError for a missing, changed or unsuitable base."""

    family = "vlm_comparator"

    config: VlmComparatorConfig
    network: Any  # transformers' model, or peft's around it
    rate_factors: dict[str, float]  # shares of the learning rate, by part of parameters' names

    def __init__(self, config: VlmComparatorConfig):
        super().__init__(config)
        check(config)
        base = bases.load_base(config)
        if "mm_encoder_outputs" not in inspect.signature(base.network.forward).parameters:
            ignored = f"transformers {metadata.version('transformers')} ignores precomputed features of images"
            raise ValueError(f"{ignored}, so the model would see none; pip install 'transformers>=5.23'")
        self.config = dataclasses.replace(config, revision=base.revision)
        self.kind, self.processor, self.built = base.family, base.processor, base.ours
        self.pair = Prompt(config, base, PAIRS)
        self.level = None if config.question == PAIRS else Prompt(config, base, LEVELS)
        self._no_split_modules = layers_of(base.network)
        self.frozen = self.large_base = config.lora
        self.projectors = base.projectors
        self.network = bases.adapted(base, config) if config.lora else base.network
        # The layer norm of the class token gets no gradient, since only patch tokens are used.
        for name, parameter in self.network.named_parameters():
            if "post_layernorm" in name:
                parameter.requires_grad_(False)
        if config.lora:
            leave_out(self, "network")

    @property
    def base(self) -> Any:
        """The model of AutoModelForImageTextToText, including its adapters if it has any."""
        return self.network.get_base_model() if self.config.lora else self.network

    @property
    def gradient_checkpointing(self) -> bool:
        """True if the backward pass computes the language model's activations again instead of keeping them."""
        return bool(self.base.is_activation_checkpointing)

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, wanted: bool) -> None:
        if wanted:
            self.base.activation_checkpointing_enable({"use_reentrant": False, "context_fn": noise.again})
        else:
            self.base.activation_checkpointing_disable()

    @property
    def attention(self) -> str:
        """How attention is computed: sdpa, flash_attention_2 or eager; ValueError without its device or package."""
        return str(self.base.config._attn_implementation)

    @attention.setter
    def attention(self, wanted: str) -> None:
        if wanted.startswith("flash") and not torch.cuda.is_available():
            raise ValueError(f"attention={wanted} needs a CUDA device; set attention=sdpa")
        try:
            self.base.set_attn_implementation(wanted)
        except (ImportError, ValueError) as error:
            raise ValueError(f"attention={wanted} is not possible here ({error}); set attention=sdpa") from error

    @property
    def unmergeable(self) -> str | None:
        """The reason why `save_merged` is impossible; None if it is possible."""
        if not self.config.lora:
            return "it has no adapters"
        return "its base has only weights in 4 bits; train with model.four_bit=false" if self.config.four_bit else None

    def describe(self) -> dict[str, Plain]:
        """Add the prompt, token ids of the answers, and base by which to ask without this package."""
        asked = {"prompt": self.pair.text, "label_ids": self.pair.answers.tolist()}
        return {**super().describe(), **asked, "base": self.config.base, "revision": self.config.revision}

    def save_beside(self, folder: Path) -> list[str]:
        """Write description, `processor` and peft's `adapter`, which is read back; RuntimeError if it differs."""
        names = super().save_beside(folder)
        with quietly():
            self.processor.save_pretrained(_empty(folder / "processor"))
        if self.config.lora:
            import peft

            self.network.save_pretrained(_empty(folder / "adapter"))
            stored = safetensors.torch.load_file(folder / "adapter" / "adapter_model.safetensors")
            _check_equal(stored, peft.get_peft_model_state_dict(self.network), "adapter")
        return names + [name for part in ("processor", "adapter") for name in _files_of(folder, part)]

    @torch.no_grad()
    def save_merged(self, folder: Path) -> tuple[list[str], float]:
        """Write the base with the adapters merged in, and its processor, into `merged` in transformers' layout.

        The weights are read back; RuntimeError if they differ. Returns the names of the files and the largest
        difference that merging makes to the logits of `example`. The model cannot be used afterwards.
        """
        from transformers import AutoModelForImageTextToText

        expected, dtype = self(**self.example()), self.base.dtype
        merged = self.network.merge_and_unload().to(dtype)
        with quietly():
            merged.save_pretrained(_empty(folder / "merged"))
            self.processor.save_pretrained(folder / "merged")
            again: nn.Module = AutoModelForImageTextToText.from_pretrained(folder / "merged", dtype=dtype)
        again = again.to(merged.device).eval()
        _check_equal(again.state_dict(), merged.state_dict(), "merged")
        self.network, self.config = again, dataclasses.replace(self.config, lora=False)
        return _files_of(folder, "merged"), float((self(**self.example()) - expected).abs().max())

    def encode(self, images: Tensor) -> Tensor:
        """Return the projector's inputs (U, ..., V) for images (U, C, S, S); several modules' are concatenated."""
        if not self.frozen:
            return self._seen(images)
        with torch.no_grad():
            return torch.cat([self._seen(part) for part in images.split(IMAGES_AT_ONCE)])

    def _seen(self, images: Tensor) -> Tensor:
        if self.built:
            inputs = pixel_values(pixels(images), self.base.config, self.base.dtype)
        else:
            inputs = processed(self.processor, self.pair.text, images)
        model = self.base.model
        given = {
            name: inputs[name].to(self.pair.ids.device, self.base.dtype if inputs[name].is_floating_point() else None)
            for name in inspect.signature(model.get_image_features).parameters.keys() & inputs.keys()
        }
        entered: list[Tensor] = []
        with _recorded([model.get_submodule(name) for name in self.projectors], entered):
            model.get_image_features(**given, return_dict=True)
        shown = len(images) if self.built else len(images) + len(images) % 2  # a processor takes pairs
        return torch.cat([each.unflatten(0, (shown, -1)) for each in entered], -1)[: len(images)]

    def project(self, encoded: Tensor) -> list[Tensor]:
        """Return image tokens (U, T, D): the last tensor for the prompt, others to add to the layers' outputs."""
        model = self.base.model
        # The trainable parts of a base compute in float32, whatever the base's type.
        parts = encoded.flatten(0, 1).to(torch.float32 if self.config.lora else self.base.dtype)
        found = []
        for name, part in zip(self.projectors, parts.chunk(len(self.projectors), -1), strict=True):
            tokens = model.get_submodule(name)(part.contiguous())
            tokens = tokens.reshape(len(encoded), -1, tokens.shape[-1]).to(self.base.dtype)
            found.append(self.kind.arrange(model, tokens, self.pair.inputs))
        return found

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) of the words First, Second and Similar after the prompt; no others are computed.

        Without gradients, the prompt up to the end of the first image is read once for all pairs that share that image,
        unless the model lets it see what comes later. Pairs are taken in parts that fit the free memory.
        """
        if torch.is_grad_enabled():
            return self._both(self.project(encoded), first, second)
        order = first.argsort(stable=True)
        one, other = first[order], second[order]
        found = self.in_parts(lambda part: self.compare_sorted(encoded, one[part], other[part]), len(order))
        return found[order.argsort()]

    def in_parts(self, ask: Callable[[slice], Tensor], count: int) -> Tensor:
        """Return `ask` of rows 0 to `count`, in parts that fit the free memory."""
        at_once, done, found = self._kept_at_once(), 0, [ask(slice(0, 0))] if not count else []
        while done < count:
            part = slice(done, min(count, done + at_once))
            try:
                found.append(ask(part))
                done = part.stop
            except torch.OutOfMemoryError:
                if at_once == 1 or self._is_split():
                    raise
                at_once = max(1, (part.stop - done) // 2)
        return torch.cat(found)

    def compare_sorted(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) of pairs sorted by `first`."""
        used, places = torch.cat([first, second]).unique(return_inverse=True)
        # Only these images' tokens, because each takes 5 MB in a 7B model.
        tokens, (one, other) = self.project(encoded[used]), places.chunk(2)
        if self.pair.kinds is not None:
            return self._both(tokens, one, other)
        heads, which = one.unique(return_inverse=True)
        _, begun = self.ask(self.pair, slice(0, self.pair.begun), [each[heads] for each in tokens], use_cache=True)
        begun.batch_select_indices(which)
        rest = [each[other] for each in tokens]
        return self.ask(self.pair, slice(self.pair.begun, None), rest, past_key_values=begun, use_cache=True)[0]

    def _is_split(self) -> bool:
        return any(hasattr(each, "full_tensor") for each in self.parameters())

    def _kept_at_once(self) -> int:
        if self._is_split():
            return KEPT_AT_ONCE // 8  # all ranks have to ask equally often, whatever memory each has
        text = self.base.config.get_text_config()
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        pair: int = 2 * text.num_hidden_layers * heads * width * self.pair.ids.shape[1] * self.base.dtype.itemsize
        return min(KEPT_AT_ONCE, max(1, int(KEPT_SHARE * free_memory_bytes(self.pair.ids.device)) // pair))

    def _both(self, tokens: Sequence[Tensor], first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) of the whole prompt for pairs of rows of `tokens`, each (U, T, D)."""
        images = [torch.stack([each[first], each[second]], 1).flatten(0, 1) for each in tokens]
        return self.ask(self.pair, slice(0, None), images, use_cache=False)[0]

    def ask(self, prompt: Prompt, span: slice, images: Sequence[Tensor], **further: object) -> tuple[Tensor, Any]:
        """Return logits (P, A) of the answers after a `span` of a prompt, and its key-value cache.

        `images` are the tokens (..., T, D) of the images in the span.
        """
        count = len(images[-1]) // (prompt.images if span == slice(0, None) else 1)
        shown = list(images[-1]) if self.kind.listed else images[-1]
        seen = SimpleNamespace(pooler_output=shown, deepstack_features=[list(each) for each in images[:-1]])
        if prompt.positions is not None:
            further["position_ids"] = prompt.positions[..., span].expand(-1, count, -1)
        if prompt.kinds is not None:
            further["token_type_ids"] = prompt.kinds[:, span].expand(count, -1)
        ids = prompt.ids[:, span].expand(count, -1)
        found = self.base(input_ids=ids, mm_encoder_outputs={"image": seen}, logits_to_keep=1, **further)
        return found.logits[:, -1, prompt.answers], found.past_key_values


@contextlib.contextmanager
def _recorded(projectors: Sequence[nn.Module], entered: list[Tensor]) -> Iterator[None]:
    """Append each projector's input to `entered`; within the block, projectors take inputs of any type."""

    def record(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        entered.append(inputs[0])
        *_, parameter = module.parameters()  # with adapters a copy that trains comes after the original
        return (inputs[0].to(parameter.dtype), *inputs[1:])

    with contextlib.ExitStack() as hooks:
        for projector in projectors:
            hooks.enter_context(projector.register_forward_pre_hook(record))
        yield


def _empty(folder: Path) -> Path:
    """Return the folder; ValueError if there are files in it that might be somebody else's."""
    if folder.exists() and any(path.is_file() for path in folder.rglob("*")):
        raise ValueError(f"{folder} has files that no complete export wrote; remove them, or export to another folder")
    return folder


def _files_of(folder: Path, part: str) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in (folder / part).rglob("*") if path.is_file())


def _check_equal(stored: Mapping[str, Tensor], expected: Mapping[str, Tensor], part: str) -> None:
    different = sorted(stored.keys() ^ expected.keys())
    different += [name for name in stored.keys() & expected.keys() if not torch.equal(stored[name], expected[name])]
    if different:
        raise RuntimeError(f"the files written to {part} differ from the model in {different[0]}")
