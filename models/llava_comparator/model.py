"""The LLaVA comparator: both images in one prompt, and the logits of three words after it."""

import dataclasses
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor

from models.comparator.interface import Comparator, pixels
from models.llava_comparator.bases import PROJECTOR, LoadedBase, adapted, load_base
from models.llava_comparator.config import IMAGE, LlavaComparatorConfig, check
from models.llava_comparator.saving import built_processor, check_equal, empty, files_of
from models.vision_tower import AT_ONCE as IMAGES_AT_ONCE
from models.vision_tower import Base, Sight, layers_of, leave_out, quietly

KEPT_AT_ONCE = 64  # at most so many pairs' keys and values are held at once
KEPT_BYTES = 8 * 2**30  # and at most so much of them: those of a pair take 0.6 GiB in a 7B model


class LlavaComparator(Comparator):
    """Comparator that asks a LLaVA; raises ValueError for a base that is missing, has changed or cannot answer."""

    family = "llava_comparator"

    config: LlavaComparatorConfig
    network: Any  # transformers' LLaVA, or peft's model around it
    ids_before: Tensor
    ids_between: Tensor
    ids_after: Tensor
    ids_answers: Tensor

    def __init__(self, config: LlavaComparatorConfig):
        super().__init__(config)
        check(config)
        base = load_base(config)
        self.config = dataclasses.replace(config, revision=base.revision)
        self.built, self.prompt = base.ours, base.prompt
        settings = base.network.config
        skip = int(settings.vision_feature_select_strategy == "default")  # the class token comes first
        layer = settings.vision_feature_layer
        self.sight = Sight(settings.vision_config.image_size, base.mean, base.std, layer, skip)
        for name, ids in zip(("before", "between", "after"), self._pieces(base), strict=True):
            self.register_buffer(f"ids_{name}", torch.tensor(ids, dtype=torch.long), persistent=False)
        self.register_buffer("ids_answers", torch.tensor(base.answer_ids, dtype=torch.long), persistent=False)
        self._no_split_modules = layers_of(base.network)
        self.frozen = config.lora
        self.network = adapted(base.network) if config.lora else base.network
        # The layer norm of the class token gets no gradient, since only patch tokens are used.
        for name, parameter in self.network.named_parameters():
            if "post_layernorm" in name:
                parameter.requires_grad_(False)
        if config.lora:
            leave_out(self, "network")

    def _pieces(self, base: LoadedBase) -> tuple[list[int], list[int], list[int]]:
        """Return the prompt's token ids before, between and after the two images."""
        prompt = base.prompt_ids
        ends = [i for i, token in enumerate(prompt) if token == base.network.config.image_token_id]
        if len(ends) != 2:
            raise ValueError(
                f"base {self.config.base}: its tokenizer does not know {IMAGE}, so it cannot take two images"
            )
        return prompt[: ends[0]], prompt[ends[0] + 1 : ends[1]], prompt[ends[1] + 1 :]

    @property
    def base(self) -> Any:
        """The `LlavaForConditionalGeneration`, including its adapters if it has any."""
        return self.network.get_base_model() if self.config.lora else self.network

    @property
    def gradient_checkpointing(self) -> bool:
        """True if the backward pass computes the language model's activations again instead of keeping them."""
        return self.base.is_activation_checkpointing

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, wanted: bool) -> None:
        if wanted:
            self.base.activation_checkpointing_enable()
        else:
            self.base.activation_checkpointing_disable()

    @property
    def unmergeable(self) -> str | None:
        """The reason why `save_merged` is impossible; None if it is possible."""
        if not self.config.lora:
            return "it has no adapters"
        if self.config.four_bit:
            return "its base has only weights in 4 bits; train with model.four_bit=false"
        if self.config.pool:
            return "transformers' LLaVA does not average tokens as it does; train with model.pool=false"
        return None

    def describe(self) -> dict[str, Any]:
        """Extend a comparator's description by what is needed to ask the base without this package."""
        return {
            **super().describe(),
            "prompt": self.prompt,
            "label_ids": self.ids_answers.tolist(),
            "base": self.config.base,
            "revision": self.config.revision,
            "pool": self.config.pool,  # which transformers' own LLaVA does not do
        }

    def save_beside(self, folder: Path) -> list[str]:
        """Write the description, `processor` (tokenizer and image processor) and `adapter` in peft's layout.

        The adapter is read back; RuntimeError if it differs.
        """
        names = super().save_beside(folder)
        with quietly():
            self.processor().save_pretrained(empty(folder / "processor"))
        if self.config.lora:
            import peft

            self.network.save_pretrained(empty(folder / "adapter"))
            stored = safetensors.torch.load_file(folder / "adapter" / "adapter_model.safetensors")
            check_equal(stored, peft.get_peft_model_state_dict(self.network), "adapter")
        return names + [name for part in ("processor", "adapter") for name in files_of(folder, part)]

    @torch.no_grad()
    def save_merged(self, folder: Path) -> tuple[list[str], float]:
        """Write the base with the adapters merged in, and its processor, into `merged` in transformers' layout.

        The weights are read back; RuntimeError if they differ. Returns the names of the files and the largest
        difference that merging makes to the logits of `example`, which is rounding. The model cannot be used
        afterwards.
        """
        from transformers import LlavaForConditionalGeneration

        expected, dtype = self(**self.example()), self.base.dtype
        merged = self.network.merge_and_unload().to(dtype)
        with quietly():
            merged.save_pretrained(empty(folder / "merged"))
            self.processor().save_pretrained(folder / "merged")
            again: Any = LlavaForConditionalGeneration.from_pretrained(folder / "merged", dtype=dtype)
        again = again.to(merged.device).eval()
        check_equal(again.state_dict(), merged.state_dict(), "merged")
        self.network, self.config = again, dataclasses.replace(self.config, lora=False)
        return files_of(folder, "merged"), float((self(**self.example()) - expected).abs().max())

    def processor(self) -> Any:
        """Return transformers' processor for images and the prompt; it scales images slightly unlike `encode`."""
        from transformers import AutoProcessor

        if not self.built:
            return Base(self.config.base, self.config.revision).load(AutoProcessor)
        return built_processor(self.base.config)

    def encode(self, images: Tensor) -> Tensor:
        """Return the vision tower's tokens (U, T, V), before the projector, of images (U, C, S, S)."""
        tower = self.base.model.vision_tower
        if not self.frozen:
            return self.sight(tower, pixels(images))
        with torch.no_grad():
            return torch.cat([self.sight(tower, part) for part in pixels(images).split(IMAGES_AT_ONCE)])

    def project(self, encoded: Tensor) -> Tensor:
        """Return the images as tokens of the language model, (U, T or T / 4, D)."""
        projector = getattr(self.base.model, PROJECTOR)
        # The trainable parts of a base compute in float32, whatever the base's type.
        tokens = projector(encoded.to(torch.float32 if self.config.lora else self.base.dtype))
        if not self.config.pool:
            return tokens
        side = int(tokens.shape[1] ** 0.5)
        return F.avg_pool2d(tokens.transpose(1, 2).unflatten(2, (side, side)), 2).flatten(2).transpose(1, 2)

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) of the words First, Second and Similar after the prompt; no others are computed.

        Without gradients, the prompt up to the end of the first image is read once for all pairs that share that image.
        """
        if torch.is_grad_enabled():
            tokens = self.project(encoded).to(self.base.dtype)
            return self._ask(torch.cat([self._begin(tokens[first]), self._go_on(tokens[second])], 1))
        order, logits = first.argsort(stable=True), []
        for rows in order.split(self._kept_at_once(encoded.shape[1])):
            used, places = torch.cat([first[rows], second[rows]]).unique(return_inverse=True)
            # Only these images' tokens, because each takes 5 MB in a 7B model.
            tokens = self.project(encoded[used]).to(self.base.dtype)
            one, other = places.chunk(2)
            heads, which = one.unique(return_inverse=True)
            begun = self.network(inputs_embeds=self._begin(tokens[heads]), logits_to_keep=1, use_cache=True)
            begun.past_key_values.batch_select_indices(which)
            logits.append(self._ask(self._go_on(tokens[other]), begun.past_key_values))
        return torch.cat(logits)[order.argsort()]

    def _kept_at_once(self, tokens: int) -> int:
        """Return how many pairs' keys and values are held at once, of images of `tokens` each before pooling."""
        text = self.base.config.text_config
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        length = 2 * (tokens // 4 if self.config.pool else tokens)
        length += len(self.ids_before) + len(self.ids_between) + len(self.ids_after)
        pair = 2 * text.num_hidden_layers * heads * width * length * self.base.dtype.itemsize
        return min(KEPT_AT_ONCE, max(1, KEPT_BYTES // pair))

    def _begin(self, image: Tensor) -> Tensor:
        """Return embeddings (P, ..., D) of the prompt up to the end of the first image (P, T, D)."""
        return torch.cat([self._words(self.ids_before, len(image)), image], 1)

    def _go_on(self, image: Tensor) -> Tensor:
        """Return embeddings (P, ..., D) of the rest of the prompt, with the second image (P, T, D)."""
        return torch.cat([self._words(self.ids_between, len(image)), image, self._words(self.ids_after, len(image))], 1)

    def _words(self, ids: Tensor, count: int) -> Tensor:
        return self.base.get_input_embeddings()(ids).expand(count, -1, -1)

    def _ask(self, inputs: Tensor, begun: Any = None) -> Tensor:
        """Return logits (P, 3) after embeddings (P, ..., D), which continue the cache `begun` if there is one."""
        kept = {"use_cache": False} if begun is None else {"past_key_values": begun}
        logits = self.network(inputs_embeds=inputs, logits_to_keep=1, **kept).logits
        return logits[:, -1, self.ids_answers]
