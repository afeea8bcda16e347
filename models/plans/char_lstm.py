"""A character LSTM that continues a text."""

from collections.abc import Iterator, Mapping, Sequence

from common.plain import Plain
from models.model import asked
from models.plans.characters import END
from models.plans.inputs import TextInput, TextSettings
from models.plans.lstm_network import LSTM, CharLSTMConfig, CharNetwork
from models.plans.readers import Reader
from models.plans.text_writer import Writer

PRESETS = {
    "default": {"kind": "embedding", "width": 256, "layers": 1, "embedding": 32, "dropout": 0.3},
    "wide": {"kind": "embedding", "width": 384, "layers": 1, "embedding": 32, "dropout": 0.5},
}


class CharLSTM(CharNetwork):
    """A character LSTM that completes text, as in `model.complete("The information manager is ", temperature=0.5)`."""

    family = "char_lstm"
    config: CharLSTMConfig
    pipeline_tag = "text-generation"
    card = LSTM
    input_type, settings_type = TextInput, TextSettings

    def complete(
        self, prompt: str, max_characters: int = 200, temperature: float = 0.5, document: str = "", **settings: Plain
    ) -> str:
        """Continue `prompt` for up to `max_characters`, until the document ends or up to `stop`, which is left out.

        `document` is the text before the prompt. Temperature 0 is greedy. The text depends only on the weights and the
        arguments. Raises ValueError for an empty prompt, and for texts and settings out of range (see inputs.py).
        """
        given, chosen = {"prompt": prompt, "document": document}, {"temperature": temperature, **settings}
        return "".join(self.stream(given, length=max_characters, **chosen))

    def prepared(self, given: TextInput, settings: TextSettings) -> TextInput:
        """Return the input. Raises ValueError for one without a prompt."""
        if not given.prompt:
            raise ValueError("prompt is missing or empty; give the text to continue, 1 character or more")
        return given

    def answers(self, prepared: Sequence[TextInput], settings: TextSettings) -> list[dict[str, Plain]]:
        """Return what follows each prompt; see `sampling.answer`."""
        return self.writer().answers(prepared, settings)

    def writer(self) -> Writer:
        """Return a writer of texts side by side."""
        return Writer(self.characters, self.reader, self.copied)

    def stream(self, given: Mapping[str, Plain] | TextInput, **settings: Plain) -> Iterator[str]:
        """Iterate over the characters of the `text` that `predict` answers, each as soon as it is certain.

        Raises ValueError for an input or settings that cannot be used, when called.
        """
        text, chosen = asked(TextInput, TextSettings, given, settings)
        return self.writer().characters_of(self.prepared(text, chosen), chosen)

    def copied(self, written: str, piece: str) -> bool:
        """Return whether `piece` makes what was written a copy of stored training text; none is stored here."""
        return False

    def reader(self, first: int = END) -> Reader:
        """Return a reader that has read only the token `first`."""
        return Reader(self, first)
