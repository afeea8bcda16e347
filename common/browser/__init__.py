"""Files that all of the project's pages share: their design (base.css), and panels in which one tries a model.

    base.css     colours, text and tables, also of reports
    panels.css   controls
    elements.js  what all panels are made of
    routes.js, text.js, signals.js, images.js    a panel for each kind of model: `NAMEPanel(place, backend)`

A panel knows only its backend, an object that answers as models do: `predict(input, settings)`, for text also
`stream(input, settings)`. Behind it is a server, or a kernel within the page.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
