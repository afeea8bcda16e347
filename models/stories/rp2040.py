"""Memory and speed of the RP2040, and how much of them a tiny transformer takes."""

from models.stories.config import TinyTransformerConfig, bucket_bits

CLOCK_HZ = 125_000_000
TWO_CORES = 1.8  # times as fast as one; a test measures it
# A word of flash on a cache miss, by four lines at half of the clock: 8 clocks of address, 4 to wait, 8 of data.
FLASH_WORD_CYCLES = 2 * 20 + 16
SRAM_BYTES = 256 * 1024  # the four striped banks; the two small ones, 8 kB, hold the stack
MEGABYTE = 1024 * 1024
RUNTIME_SRAM_BYTES = 9216  # bound on the runtime's own data and hot code; a test checks the linked image against it
RUNTIME_FLASH_BYTES = 64 * 1024
TOKEN_BYTES = 32  # of a vocabulary file for each token, at most
STREAM_BYTES = 8 * 1024  # two buffers for weights on their way from flash
STREAM_CYCLES = 4  # a byte: two clocks of four lines at half of the clock, by DMA while both cores multiply
TABLES_BYTES = 2 * 704 + 2 * 1024  # of exp and GELU
LAYER_BYTES = 64  # pointers that the runtime keeps per layer
FORMAT_LIMITS = {  # field: (least, largest, multiple)
    "vocabulary": (4, 4096, 2),
    "width": (4, 128, 4),
    "layers": (1, 16, 1),
    "heads": (1, 128, 1),
    "hidden": (4, 1024, 4),
    "context": (2, 256, 2),
}


def model_bytes(config: TinyTransformerConfig) -> int:
    """Bytes of the model file after its header but for tables and counts; see exporters/rp2040/FORMAT.md."""
    width, hidden, vocabulary = config.width, config.hidden, config.vocabulary
    layer = 12 + 6 * (5 * width + hidden) + 2 * config.heads * config.context + (4 * width * width + 2 * width * hidden)
    return TABLES_BYTES + config.layers * layer + vocabulary * (6 + width)


def memory_bytes(config: TinyTransformerConfig) -> int:
    """Bytes of the tables of the memory, which stay in flash."""
    return sum(config.memory) * (4 + config.width)


def counts_bytes(config: TinyTransformerConfig) -> int:
    """Bytes of the counts and of where their buckets begin, which stay in flash."""
    return 4 * ((1 << bucket_bits(config.counts)) + 1 + config.counts) if config.counts else 0


def flash_bytes(config: TinyTransformerConfig) -> int:
    """Bytes of flash in use, with a bound on the vocabulary, which is not known before training."""
    fixed = RUNTIME_FLASH_BYTES + TOKEN_BYTES * config.vocabulary
    return fixed + model_bytes(config) + memory_bytes(config) + counts_bytes(config)


def sram_bytes(config: TinyTransformerConfig) -> int:
    """Bytes of SRAM in use while the model runs, without the stack: runtime, cache, activations, weights kept there."""
    return RUNTIME_SRAM_BYTES + arena_bytes(config)


def arena_bytes(config: TinyTransformerConfig) -> int:
    """Bytes of SRAM that the runtime fills behind its own data; `needed_bytes` in its firmware is the same sum."""
    if not streams(config):
        return model_bytes(config) + _state_bytes(config)
    # exp and GELU; shifts and distance biases of all layers; biases and multipliers of one layer or of the embedding
    kept = TABLES_BYTES + config.layers * (12 + 2 * config.heads * config.context)
    return kept + 6 * max(5 * config.width + config.hidden, config.vocabulary) + STREAM_BYTES + _state_bytes(config)


def streams(config: TinyTransformerConfig) -> bool:
    """Whether the weights stay in flash and are streamed for each token, because SRAM has no room for them."""
    return RUNTIME_SRAM_BYTES + model_bytes(config) + _state_bytes(config) > SRAM_BYTES


def _state_bytes(config: TinyTransformerConfig) -> int:
    """Bytes of what changes while the model runs, and of distance biases: 16 bits in the file, 32 in SRAM."""
    width, layers, context = config.width, config.layers, config.context
    wider_biases = 2 * layers * config.heads * context
    cache = 2 * layers * context * width
    longest = max(config.vocabulary, config.hidden, 3 * width + 2 * context)  # two cores, a row of scores each
    return LAYER_BYTES * layers + wider_biases + cache + (4 * (3 * width + longest) + 2 * config.vocabulary)


def check(config: TinyTransformerConfig) -> None:
    """Raise ValueError, saying what to lower, for sizes that exceed the file format or the chip's memory."""
    for name, (least, largest, multiple) in FORMAT_LIMITS.items():
        value = getattr(config, name)
        if not least <= value <= largest or value % multiple:
            also = f" and a multiple of {multiple}" * (multiple > 1)
            raise ValueError(f"model.{name}={value} must be {least} to {largest}{also} to run on the RP2040")
    if (excess := flash_bytes(config) - config.flash_megabytes * MEGABYTE) > 0:
        memory = f"model.memory={list(config.memory)} takes {memory_bytes(config):,} bytes"
        counts = f"model.counts={config.counts} {counts_bytes(config):,}"
        leave = f"{config.flash_megabytes} MB of flash leave beside runtime and vocabulary"
        way = "halve one of the tables, or give model.flash_megabytes=4 (or 8, 16) if your board has them"
        rest = f"the rest of the model {model_bytes(config):,}, {excess:,} more than {leave}"
        raise ValueError(f"{memory}, {counts} and {rest}; {way}")
    if (excess := sram_bytes(config) - SRAM_BYTES) > 0:
        remedies = [f"model.{name}={value}" for name in FORMAT_LIMITS if (value := _largest_that_fits(config, name))]
        needed = f"{sram_bytes(config):,} bytes of the RP2040's {SRAM_BYTES:,} bytes of SRAM, {excess:,} too many"
        way = f"lower one of: {', '.join(remedies) or 'several of its sizes at once'}"
        raise ValueError(f"with its weights in flash the model needs {needed}; {way}")


def _largest_that_fits(config: TinyTransformerConfig, name: str) -> int | None:
    """The largest smaller value of one field with which the model fits SRAM, all else equal; None if there is none."""
    least, _, multiple = FORMAT_LIMITS[name]
    smaller = range(getattr(config, name) - multiple, least - 1, -multiple) if name != "heads" else range(0)
    possible = (value for value in smaller if name != "width" or value % config.heads == 0)
    sizes = ((value, TinyTransformerConfig(**{**vars(config), name: value})) for value in possible)
    return next((value for value, changed in sizes if sram_bytes(changed) <= SRAM_BYTES), None)


def cycles_per_token(config: TinyTransformerConfig) -> float:
    """Estimated cycles per token of greedy decoding on both cores with a full cache; a test compares the emulator's."""
    width, hidden, layers, heads = config.width, config.hidden, config.layers, config.heads
    outputs = layers * (5 * width + 2 * hidden) + config.vocabulary  # rows of all matrices, and GELU of hidden units
    products = layers * (4 * width * width + 2 * width * hidden) + config.vocabulary * width
    head = width // heads
    key = 12 + (14 if head <= 2 else 16 * head)  # heads of 1 and 2 channels have kernels of their own
    multiplied = (5.4 * products + 10 * outputs) / TWO_CORES
    if streams(config):  # both cores wait for what they multiply
        multiplied = max(multiplied, STREAM_CYCLES * model_bytes(config))
    between = (key * layers * heads * config.context + 1200 * (2 * layers + 1)) / TWO_CORES
    # For the memory, every word of a row is missing from the cache of the flash.
    words = len(config.memory) * (1 + width / 4)
    return multiplied + between + words * FLASH_WORD_CYCLES + (len(config.memory) + 1) * 15 * width
