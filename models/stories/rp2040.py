"""Memory and speed of the RP2040, and how much of them a tiny transformer takes."""

from models.stories.config import TinyTransformerConfig, bucket_bits

CLOCK_HZ = 125_000_000
TWO_CORES = 1.8  # times as fast as one; a test measures it
# The flash is read by the command 03h at a quarter of the clock: 8 bits of command, 24 of address, 32 of data.
FLASH_WORD_CYCLES = 4 * 64 + 16
SRAM_BYTES = 256 * 1024  # the four striped banks; the two small ones, 8 kB, hold the stack
MEGABYTE = 1024 * 1024
RUNTIME_SRAM_BYTES = 8448  # bound on the runtime's own data and hot code; a test checks the linked image against it
RUNTIME_FLASH_BYTES = 64 * 1024
TOKEN_BYTES = 32  # of a vocabulary file for each token, at most
STREAM_BYTES = 8 * 1024  # two buffers for weights on their way from flash, at most
STREAM_CYCLES = 4  # a byte: quad reads at half of the clock, by DMA while both cores multiply
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
    rows = 5 * width + hidden
    weights = 4 * width * width + 2 * width * hidden
    layer = 12 + 6 * rows + 2 * config.heads * config.context + weights
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
    tables = TABLES_BYTES + 2 * config.layers * config.heads * config.context  # exp, GELU and distance biases
    return (tables + STREAM_BYTES if streams(config) else model_bytes(config)) + _state_bytes(config)


def streams(config: TinyTransformerConfig) -> bool:
    """Whether the weights stay in flash and are streamed for each token, because SRAM has no room for them."""
    return RUNTIME_SRAM_BYTES + model_bytes(config) + _state_bytes(config) > SRAM_BYTES


def _state_bytes(config: TinyTransformerConfig) -> int:
    """Bytes of what changes while the model runs, and of distance biases: 16 bits in the file, 32 in SRAM."""
    width, layers, context = config.width, config.layers, config.context
    wider_biases = 2 * layers * config.heads * context
    cache = 2 * layers * context * width
    longest = max(config.vocabulary, config.hidden, 3 * width + 2 * context)  # two cores, a row of scores each
    activations = 4 * (3 * width + longest) + 2 * config.vocabulary
    return LAYER_BYTES * layers + wider_biases + cache + activations


def check(config: TinyTransformerConfig) -> None:
    """Raise ValueError, saying what to lower, for sizes that exceed the file format or the chip's memory."""
    for name, (least, largest, multiple) in FORMAT_LIMITS.items():
        value = getattr(config, name)
        if not least <= value <= largest or value % multiple:
            raise ValueError(
                f"model.{name}={value} must be {least} to {largest}"
                + (f" and a multiple of {multiple}" if multiple > 1 else "")
                + " to run on the RP2040"
            )
    excess = flash_bytes(config) - config.flash_megabytes * MEGABYTE
    if excess > 0:
        raise ValueError(
            f"model.memory={list(config.memory)} takes {memory_bytes(config):,} bytes, model.counts={config.counts} "
            f"{counts_bytes(config):,} and the rest of the model {model_bytes(config):,}, {excess:,} more than "
            f"{config.flash_megabytes} MB of flash leave beside runtime and vocabulary; halve one of the tables, or "
            "give model.flash_megabytes=4 (or 8, 16) if your board has them"
        )
    excess = sram_bytes(config) - SRAM_BYTES
    if excess > 0:
        remedies = [f"model.{name}={value}" for name in FORMAT_LIMITS if (value := _largest_that_fits(config, name))]
        raise ValueError(
            f"with its weights in flash the model needs {sram_bytes(config):,} bytes of the RP2040's {SRAM_BYTES:,} "
            f"bytes of SRAM, {excess:,} too many; lower one of: {', '.join(remedies) or 'several of its sizes at once'}"
        )


def _largest_that_fits(config: TinyTransformerConfig, name: str) -> int | None:
    """The largest smaller value of one field with which the model fits SRAM, all else equal; None if there is none."""
    least, _, multiple = FORMAT_LIMITS[name]
    if name == "heads":
        return None
    for value in range(getattr(config, name) - multiple, least - 1, -multiple):
        if name == "width" and value % config.heads:
            continue
        if sram_bytes(TinyTransformerConfig(**{**vars(config), name: value})) <= SRAM_BYTES:
            return value
    return None


def cycles_per_token(config: TinyTransformerConfig) -> float:
    """Estimated cycles per token of greedy decoding on both cores with a full cache; a test compares the emulator's."""
    width, hidden, layers, heads = config.width, config.hidden, config.layers, config.heads
    outputs = layers * (5 * width + 2 * hidden) + config.vocabulary  # rows of all matrices, and GELU of hidden units
    products = layers * (4 * width * width + 2 * width * hidden) + config.vocabulary * width
    head = width // heads
    key = 12 + (14 if head <= 2 else 16 * head)  # heads of 1 and 2 channels have kernels of their own
    one_core = 5.4 * products + 10 * outputs + key * layers * heads * config.context + 1200 * (2 * layers + 1)
    # For the memory, every word of a row is missing from the cache of the flash.
    words = len(config.memory) * (1 + width / 4)
    multiplied = max(one_core / TWO_CORES, STREAM_CYCLES * model_bytes(config) if streams(config) else 0)
    return multiplied + words * FLASH_WORD_CYCLES + (len(config.memory) + 1) * 15 * width


def tokens_per_second(config: TinyTransformerConfig) -> float:
    """Estimated speed of both cores at 125 MHz with a full cache."""
    return CLOCK_HZ / cycles_per_token(config)
