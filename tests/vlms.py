"""Small vision-language models with random weights, one of each family, in folders in the hub's layout.

Their tokenizers know few words; their chat templates are those of the families, shortened. Images of 16 pixels a side
are cut up, enlarged or brought to windows as the family does with large ones.
"""

import json
from pathlib import Path

import torch

SIZE = 16  # pixels a side of the images that they are shown
WORDS = "Which of the two images ranks higher in glow: First, Second or Similar? First Second Similar USER: ASSISTANT: "
WORDS += "How would you rate the glow of the image: Excellent, Good, Fair, Poor or Bad? Bad Poor Fair Good Excellent"
LLAVA_CHAT = (
    "{% for message in messages %}USER: {% for part in message['content'] %}{% if part['type'] == 'image' %}<image>\n"
    "{% else %}{{ part['text'] }} {% endif %}{% endfor %}{% endfor %}ASSISTANT:"
)
MARKED_CHAT = (
    "{% for message in messages %}<|im_start|>user\n{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}MARK{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHAPE = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {**SHAPE, "num_key_value_heads": 1, "max_position_embeddings": 512, "pad_token_id": 0}
VISION = {**SHAPE, "image_size": SIZE, "patch_size": 4}
QWEN_VISION = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_heads": 2,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 16,
}
IM = ("<|im_start|>", "<|im_end|>", "user", "assistant")
IDEFICS_TOKENS = ("<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
IDEFICS_TOKENS += tuple(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2))


def tokenizer(special=(), **named):
    """A tokenizer of whole words; `named` are special tokens that processors look up by name."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = dict.fromkeys(
        ["<pad>", "<unk>", "<s>", "</s>", *named.values(), *special, *IM, *WORDS.split(), "answer", "en"]
    )
    vocabulary = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    vocabulary.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=vocabulary,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=[word for word in (*special, *IM[:2]) if word not in named.values()],
        extra_special_tokens=named,
    )


def _processor(kind, images, words, **settings):
    """A processor without its part for videos, which would need torchvision."""
    from models.images.vlm_comparator.bases import without_videos

    parts = {"image_processor": images, "tokenizer": words, **settings}
    return without_videos(kind)(**parts, **({"video_processor": None} if _has_videos(kind) else {}))


def _has_videos(kind):
    return "video_processor" in kind.get_attributes()


def llava():
    import transformers as t

    words = tokenizer(image_token="<image>")
    images = t.CLIPImageProcessor(
        size={"shortest_edge": SIZE},
        crop_size={"height": SIZE, "width": SIZE},
        image_mean=[0.4] * 3,
        image_std=[0.3] * 3,
    )
    processor = _processor(
        t.LlavaProcessor,
        images,
        words,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=LLAVA_CHAT,
    )
    config = t.LlavaConfig(
        vision_config=t.CLIPVisionConfig(**VISION),
        text_config=t.LlamaConfig(**TEXT, vocab_size=len(words)),
        image_token_index=words.image_token_id,
        vision_feature_layer=-2,
    )
    return config, processor


def llava_next():
    import transformers as t
    from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

    words, grids = tokenizer(image_token="<image>"), [[SIZE, 2 * SIZE], [2 * SIZE, 2 * SIZE]]
    processor = _processor(
        t.LlavaNextProcessor,
        LlavaNextImageProcessorPil(
            size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}, image_grid_pinpoints=grids
        ),
        words,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=LLAVA_CHAT,
    )
    config = t.LlavaNextConfig(
        vision_config=t.CLIPVisionConfig(**VISION),
        text_config=t.LlamaConfig(**TEXT, vocab_size=len(words)),
        image_token_index=words.image_token_id,
        image_grid_pinpoints=grids,
        vision_feature_layer=-2,
    )
    return config, processor


def llava_onevision():
    import transformers as t
    from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil

    words, grids = tokenizer(image_token="<image>", video_token="<video>"), [[SIZE, SIZE], [2 * SIZE, 2 * SIZE]]
    processor = _processor(
        t.LlavaOnevisionProcessor,
        LlavaOnevisionImageProcessorPil(size={"height": SIZE, "width": SIZE}, image_grid_pinpoints=grids),
        words,
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        chat_template=LLAVA_CHAT,
    )
    config = t.LlavaOnevisionConfig(
        vision_config=t.SiglipVisionConfig(**VISION, vision_use_head=False),
        text_config=t.Qwen2Config(**TEXT, vocab_size=len(words)),
        image_token_index=words.image_token_id,
        video_token_index=words.video_token_id,
        image_grid_pinpoints=grids,
    )
    return config, processor


def _qwen(kind, config_class, vision, text):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    start, end = "<|vision_start|>", "<|vision_end|>"
    words = tokenizer((start, end), image_token="<|image_pad|>", video_token="<|video_pad|>")
    images = Qwen2VLImageProcessorPil(
        patch_size=4, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
    )
    chat = MARKED_CHAT.replace("MARK", f"{start}<|image_pad|>{end}")
    processor = _processor(kind, images, words, chat_template=chat)
    marks = {
        "image_token_id": words.image_token_id,
        "video_token_id": words.video_token_id,
        "vision_start_token_id": words.convert_tokens_to_ids(start),
        "vision_end_token_id": words.convert_tokens_to_ids(end),
    }
    text = {**TEXT, "vocab_size": len(words), **text}
    return config_class(vision_config={**QWEN_VISION, **vision}, text_config=text, **marks), processor


def qwen2_vl():
    import transformers as t

    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    vision = {"embed_dim": 16, "mlp_ratio": 2}
    return _qwen(t.Qwen2VLProcessor, t.Qwen2VLConfig, vision, {"rope_parameters": rope})


def qwen2_5_vl():
    import transformers as t

    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    vision = {"window_size": 16, "fullatt_block_indexes": [1]}
    return _qwen(t.Qwen2_5_VLProcessor, t.Qwen2_5_VLConfig, vision, {"rope_parameters": rope})


def qwen3_vl():
    import transformers as t

    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    vision = {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}
    return _qwen(
        t.Qwen3VLProcessor, t.Qwen3VLConfig, vision, {"rope_parameters": rope, "head_dim": 8, "num_hidden_layers": 3}
    )


def _idefics(kind, config_class, vision_class, images_class):
    import transformers as t

    words = tokenizer(IDEFICS_TOKENS, image_token="<image>")
    images = images_class(size={"longest_edge": 2 * SIZE}, max_image_size={"longest_edge": SIZE})
    processor = _processor(kind, images, words, image_seq_len=4, chat_template=LLAVA_CHAT)
    config = config_class(
        vision_config=vision_class(**VISION),
        text_config=t.LlamaConfig(**TEXT, vocab_size=len(words)),
        image_token_id=words.image_token_id,
        scale_factor=2,
        pad_token_id=0,
    )
    return config, processor


def idefics3():
    import transformers as t
    from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    return _idefics(t.Idefics3Processor, t.Idefics3Config, Idefics3VisionConfig, Idefics3ImageProcessorPil)


def smolvlm():
    import transformers as t
    from transformers.models.smolvlm.configuration_smolvlm import SmolVLMVisionConfig
    from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

    return _idefics(t.SmolVLMProcessor, t.SmolVLMConfig, SmolVLMVisionConfig, SmolVLMImageProcessorPil)


def internvl():
    import transformers as t
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
    from transformers.models.internvl.configuration_internvl import InternVLVisionConfig

    words = tokenizer(
        start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>", video_token="<video>"
    )
    images = GotOcr2ImageProcessorPil(size={"height": SIZE, "width": SIZE}, crop_to_patches=True, max_patches=4)
    chat = MARKED_CHAT.replace("MARK", "<IMG_CONTEXT>\n")
    processor = _processor(t.InternVLProcessor, images, words, image_seq_length=4, chat_template=chat)
    config = t.InternVLConfig(
        vision_config=InternVLVisionConfig(**{**VISION, "image_size": [SIZE, SIZE], "patch_size": [4, 4]}),
        text_config=t.Qwen2Config(**TEXT, vocab_size=len(words)),
        image_token_id=words.context_image_token_id,
        image_seq_length=4,
    )
    return config, processor


def paligemma():
    import transformers as t

    images = t.SiglipImageProcessor(size={"height": SIZE, "width": SIZE})
    images.image_seq_length = 16
    processor = _processor(t.PaliGemmaProcessor, images, tokenizer(image_token="<image>"))
    words = processor.tokenizer
    config = t.PaliGemmaConfig(
        vision_config=t.SiglipVisionConfig(**VISION, projection_dim=16, vision_use_head=False),
        text_config=t.GemmaConfig(**TEXT, head_dim=8, vocab_size=len(words)),
        image_token_index=words.convert_tokens_to_ids("<image>"),
        projection_dim=16,
        hidden_size=16,
        vocab_size=len(words),
    )
    return config, processor


def gemma3():
    import transformers as t
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    words = tokenizer(boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>")
    chat = MARKED_CHAT.replace("MARK", "<start_of_image>")
    images = Gemma3ImageProcessorPil(size={"height": SIZE, "width": SIZE})
    processor = _processor(t.Gemma3Processor, images, words, image_seq_length=4, chat_template=chat)
    text = t.Gemma3TextConfig(
        **TEXT,
        head_dim=8,
        query_pre_attn_scalar=8,
        vocab_size=len(words),
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
    )
    config = t.Gemma3Config(
        text_config=text,
        vision_config=t.SiglipVisionConfig(**VISION, vision_use_head=False),
        mm_tokens_per_image=4,
        boi_token_index=words.boi_token_id,
        eoi_token_index=words.eoi_token_id,
        image_token_index=words.image_token_id,
    )
    return config, processor


FAMILIES = {
    make.__name__: make
    for make in (
        llava,
        llava_next,
        llava_onevision,
        qwen2_vl,
        qwen2_5_vl,
        qwen3_vl,
        idefics3,
        smolvlm,
        internvl,
        paligemma,
        gemma3,
    )
}


# The parts of processors that are for videos, as the hub's folders have them.
VIDEO = {
    "llava_onevision": "LlavaOnevisionVideoProcessor",
    "qwen2_vl": "Qwen2VLVideoProcessor",
    "qwen2_5_vl": "Qwen2VLVideoProcessor",
    "qwen3_vl": "Qwen3VLVideoProcessor",
    "smolvlm": "SmolVLMVideoProcessor",
    "internvl": "InternVLVideoProcessor",
}


def save(family, folder, seed=0):
    """Save a small model of a family, with its processor; return the folder's path as a string."""
    from transformers import AutoModelForImageTextToText

    config, processor = FAMILIES[family]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = AutoModelForImageTextToText.from_config(config)
        for parameter in network.parameters():  # with freshly drawn weights, images and words hardly differ
            parameter.data += 0.2 * torch.randn_like(parameter)
    network.save_pretrained(folder)
    processor.save_pretrained(folder)
    if family in VIDEO:
        (Path(folder) / "video_preprocessor_config.json").write_text(
            json.dumps({"video_processor_type": VIDEO[family]})
        )
    return str(folder)
