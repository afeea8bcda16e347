"""Files shared by all pages: their design (base.css), and panels to try a model in.

    base.css     colours (nowhere else), text and tables, also of reports
    panels.css   controls
    elements.js  building blocks of panels
    routes.js, text.js, signals.js, images.js    a panel for each kind of model: `NAMEPanel(place, backend)`

A panel knows only its backend, a server or a kernel in the page, with `predict(input, settings)` and, for text,
`stream(input, settings)`, as models have them.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
