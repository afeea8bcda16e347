"""Files shared by all pages: their design (base.css has all colours), and a panel to try each kind of model in.

A panel, `NAMEPanel(place, backend)` in routes.js, text.js, signals.js or images.js, is made of elements.js and knows
only its backend, a server or a kernel in the page: `predict(input, settings)` and, for text, `stream(input, settings)`.
"""

from functools import partial
from pathlib import Path

from jinja2 import Environment, StrictUndefined

FOLDER = Path(__file__).parent
# Escapes every value; callers' loaders include this folder.
TEMPLATES = partial(Environment, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
