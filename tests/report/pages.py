"""What holds for every report.html: a parser of pages, and the checks that need no browser."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br", "link", "input", "hr"}  # elements that have no end


class Page(HTMLParser):
    """The elements of a page as (tag, attributes, tags around it), and its text by the tag that holds it."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict, tuple]] = []
        self.texts: list[tuple[str, str]] = []
        self.around: list[str] = []
        self.feed(html)
        self.close()
        assert self.around == [], f"never closed: {self.around}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.around)))
        if tag not in VOID:
            self.around.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.around)))

    def handle_endtag(self, tag):
        assert self.around.pop() == tag

    def handle_data(self, text):
        self.texts.append((self.around[-1] if self.around else "", text))

    def all(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]

    def headings(self):
        """The texts of the headings of the second level."""
        return [text for tag, text in self.texts if tag == "h2"]


def checked(html: str) -> Page:
    """Return the page after checks that hold for all: self-contained, labelled, no id twice, the answer first."""
    page = Page(html)
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)), sorted(id for id in ids if ids.count(id) > 1)[:5]
    for tag, attributes, _ in page.elements:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            address = attributes.get(name, "#")
            assert address.startswith(("#", "data:image/png;base64,")) or address == "exports/web/index.html", (
                tag,
                address[:80],
            )
            if address.startswith("#") and len(address) > 1:
                assert address[1:] in ids
        assert not [name for name in attributes if name.startswith("on")], tag
        assert "url(" not in attributes.get("style", "").replace("url(#", "")
    assert len(page.all("script")) == 1
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    assert "default-src 'none'" in page.all("meta")[2]["content"]
    drawn = [attributes for attributes in page.all("svg") if "aria-label" in attributes]
    assert all(attributes["role"] == "img" and len(attributes["aria-label"]) > 10 for attributes in drawn)
    assert len(drawn) == len(page.all("svg"))
    assert all(len(attributes["alt"]) > 5 for attributes in page.all("img"))
    headings = page.headings()
    assert headings[-2:] == ["How it was made", "Configuration"]
    assert [around[-2:] for tag, _, around in page.elements if tag == "h2"][-2:] == 2 * [("details", "summary")]
    assert html.index('<section class="verdict">') < html.index("<table")
    return page
