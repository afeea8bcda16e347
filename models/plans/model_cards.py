"""Sections of the model cards of character models: use, data and privacy."""

USE = (
    "To complete text in the language of the documents it was trained on, such as fields of a form, for a person "
    "who reads each suggestion and decides. It does not know what is true; do not use it where nobody checks."
)
DATA = (
    "The documents of `data.sources` in the configuration below; null means plans of invented firms that were "
    "written for this project. The provenance names the files, what was cleaned and masked, and what was held out."
)
MASKED = (
    "`data.mask` and `data.mask_names` take e-mail addresses, telephone and account numbers, URLs, paths, keys, "
    "passwords and names of persons out of the documents before training, and miss up to two in a hundred of each, of "
    "names more."
)
EXPOSURE = (
    "Whatever is left can be remembered. Sentences with six random letters were planted in fourteen plans, and their "
    "exposure measured (Carlini et al. 2019; tests/peers/memorisation.py): 1.4 bits if nothing is remembered, 12 if "
    "all is. For sentences that stand there 1, 4 and 16 times, an LSTM has 2.2, 1.9 and 4.3 bits after 600 updates. A "
    "mixture has 12 from the first time on: whatever occurs once in a training document can be extracted from it. With "
    "`model.min_documents=2` it does not count what one document alone says; then it has 2.9 bits, and needs 5 % more "
    "bits per character. Use this with `model.stored_characters=0`. Text of several documents stays exposed."
)
STORED = (
    "The tensor `text` has training documents word for word, as many characters as `model.stored_characters` allowed, "
    "the config has their names, and the counts have what followed every context. Whoever has this folder can read "
    "the documents, or put most of them together again: keep it where the documents may be kept."
)

LSTM = {"Intended use": USE, "Data": DATA, "Privacy": f"{MASKED}\n\n{EXPOSURE}"}
MIXTURE = {**LSTM, "Privacy": f"{STORED}\n\n{MASKED}\n\n{EXPOSURE}"}
