"""The page of settings in a UF2 file: how the board tells stories until a person sets something else."""

import struct
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from common.config import plain_yaml
from common.errors import as_user_error

PAGE = 256
MOST_PROMPT = 232  # bytes
MOST_TOKENS, MOST_TOP_K = 99_999, 4096


@dataclass(frozen=True)
class Settings:
    """Settings for telling stories, from `evaluation.*` of a run."""

    temperature: float = 0.8  # 0: greedy
    top_k: int = 40  # 0: all tokens
    tokens: int = 200  # of a story, at most
    prompt: str = ""  # in place of an empty line
    seed: int = 0  # 0: a new one for each story

    def pack(self) -> bytes:
        """The page of FORMAT.md; ValueError, naming the limits, for values that the board does not take."""
        prompt = self.prompt.encode()
        greedy, sampled = self.temperature == 0, 0.05 <= self.temperature <= 10
        for name, given, good, allowed in (
            ("temperature", self.temperature, greedy or sampled, "0 or 0.05 to 10"),
            ("top_k", self.top_k, 0 <= self.top_k <= MOST_TOP_K, f"0 to {MOST_TOP_K}"),
            ("sample_tokens", self.tokens, 1 <= self.tokens <= MOST_TOKENS, f"1 to {MOST_TOKENS}"),
            ("prompts[0]", self.prompt, len(prompt) <= MOST_PROMPT, f"up to {MOST_PROMPT} bytes"),
        ):
            if not good:
                unfit = f"evaluation.{name}={given} does not fit the board, which takes {allowed}"
                raise ValueError(f"{unfit}; change it in the run's config.yaml")
        numbers = round(256 * self.temperature), self.top_k, self.tokens, self.seed, len(prompt)
        page = (struct.pack("<HHIIBxxx", *numbers) + prompt).ljust(PAGE - 8, b"\0")
        return b"TTS1" + struct.pack("<I", crc32(page)) + page


def of_run(run: Path) -> Settings:
    """The settings in a run's config.yaml, or a shipped model's run.yaml; else the defaults of this file."""
    path = next((run / name for name in ("config.yaml", "run.yaml") if (run / name).is_file()), None)
    wrong = (AttributeError, TypeError, ValueError, KeyError)
    with as_user_error(f"{path}: its `evaluation` is not that of a tinystories run (", "); copy it again", wrong):
        found = (plain_yaml.parse(path.read_bytes() if path else b"") or {}).get("evaluation") or {}
        return Settings(
            float(found.get("temperature", Settings.temperature)),
            int(found.get("top_k", Settings.top_k)),
            int(found.get("sample_tokens", Settings.tokens)),
            str((found.get("prompts") or [Settings.prompt])[0]),
        )
