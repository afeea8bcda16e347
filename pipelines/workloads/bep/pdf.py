"""The text of PDF files, page by page."""

import io
import logging
from typing import Any

from common.errors import UserError
from pipelines.workloads.bep.refusals import reason, too_large


def read_pdf(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Return the text with pages separated by form feeds, the number of pages, and warnings.

    Raises UserError for what is not a PDF, is encrypted, or expands beyond `maximum_bytes`.
    """
    import pypdf

    limits = ("zlib", "lzw", "run_length", "array_based_stream", "brotli")
    caps = {f"{limit}_maximum_output_length": maximum_bytes for limit in limits}
    log, messages = logging.getLogger("pypdf"), _Messages()
    propagate, log.propagate = log.propagate, False  # the messages become warnings in the report
    log.addHandler(messages)
    pages: list[str] = []
    try:
        with pypdf.apply_configuration(**caps):
            reader = pypdf.PdfReader(io.BytesIO(content))
            if reader.is_encrypted and not _opens(reader):
                raise UserError("is encrypted; save it without a password")
            size = 0
            for page in reader.pages:
                pages.append(page.extract_text().replace("\f", "\n").strip("\n"))
                size += len(pages[-1])
                if size > maximum_bytes:
                    raise too_large(size, maximum_bytes)
    except UserError:
        raise
    except Exception as error:  # "broken PDF files might cause other exceptions", says its documentation
        raise UserError(f"cannot be read as a PDF: {reason(error)}; print it to a new PDF") from error
    finally:
        log.removeHandler(messages)
        log.propagate = propagate
    warnings = (
        [f"problems met in reading: {len(messages.texts)}, such as {messages.texts[0]!r}"] if messages.texts else []
    )
    empty = sum(not page.strip() for page in pages)
    if empty:
        warnings.append(f"pages without text (scanned, or pictures only): {empty} of {len(pages)}")
    return "\f".join(pages), len(pages), warnings


def _opens(reader: Any) -> bool:
    """Return whether the empty password opens the file: many are encrypted only to forbid printing."""
    import pypdf

    try:
        return reader.decrypt("") != pypdf.PasswordType.NOT_DECRYPTED
    except pypdf.errors.DependencyError:  # AES needs a package that is not installed
        return False


class _Messages(logging.Handler):
    """Collects what a library logs."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
