"""Sections of the model cards of character models: use, data and privacy."""

from pathlib import Path

TEXT = Path(__file__).with_suffix(".md").read_text()
USE, DATA, MASKED, EXPOSURE, STORED = (" ".join(part.split()[1:]) for part in TEXT.split("## ")[1:])

LSTM = {"Intended use": USE, "Data": DATA, "Privacy": f"{MASKED}\n\n{EXPOSURE}"}
MIXTURE = {**LSTM, "Privacy": f"{STORED}\n\n{MASKED}\n\n{EXPOSURE}"}
