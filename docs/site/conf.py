"""Settings of Sphinx. `stage.py` makes the folder that it reads."""

import html
import os
import re
import sys
import tomllib
from pathlib import Path

from docutils import nodes

ROOT = Path(__file__).resolve().parents[2]
# The package, for the reference of Python: it is in the environment that ./test-python makes.
sys.path.append(os.environ["SITE_PACKAGES"])

project = "sclub"
version = release = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"sclub {version}"
html_static_path = [str(ROOT / "docs/site/static")]
html_css_files = ["site.css"]
html_favicon = str(ROOT / "docs/site/static/favicon.svg")
html_search_scorer = str(ROOT / "target/docs/scorer.js")
html_show_search_summary = False  # scorer.js has the lines with the words
html_use_index = html_domain_indices = False
html_show_copyright = html_show_sphinx = html_copy_source = False
html_theme_options = {"source_edit_link": "", "top_of_page_buttons": []}
pygments_style, pygments_dark_style = "a11y-light", "github-dark"
highlight_language = "text"
smartquotes = False

myst_heading_anchors = 4
# Pages are written for GitHub too: a directive of MyST would be shown as it is there.
myst_enable_extensions = []
suppress_warnings = ["myst.header", "ref.python"]

default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
autodoc_default_options = {"members": True, "inherited-members": False, "undoc-members": False}
maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_ivar = True

# What the theme leaves out for people who use a keyboard or a screen reader.
ACCESSIBLE = [
    (r'<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    (r'<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    (r'<aside class="toc-drawer">', '<aside class="toc-drawer" aria-label="On this page">'),
    (r"<pre>", '<pre tabindex="0">'),  # it scrolls
    (r'<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    (r'<th( class="[^"]*")><p></p></th>', r"<td\1></td>"),
    (r'(<div id="search-results">)', r"<h1>Search</h1>\1"),
]


def describe(app, pagename, templatename, context, doctree):
    """The first paragraph of a page is its description, for search engines and previews of links."""
    first = next(doctree.findall(nodes.paragraph), None) if doctree else None
    if first:
        text = " ".join(first.astext().split())
        text = text if len(text) <= 160 else text[:160].rsplit(" ", 1)[0] + " …"
        context["metatags"] += f'<meta name="description" content="{html.escape(text)}">'


def make_accessible(app, exception):
    for file in Path(app.outdir).glob("*.html") if not exception else ():
        text = file.read_text(encoding="utf-8")
        for wrong, right in ACCESSIBLE:
            text = re.sub(wrong, right, text)
        file.write_text(text, encoding="utf-8")


def setup(app):
    app.connect("html-page-context", describe)
    app.connect("build-finished", make_accessible)
