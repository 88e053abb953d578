"""Settings of Sphinx. `stage.py` makes the folder that it reads."""

import os
import sys
import tomllib
from pathlib import Path

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
html_use_index = html_domain_indices = False
html_show_copyright = html_show_sphinx = html_copy_source = False
html_theme_options = {"source_edit_link": "", "top_of_page_buttons": []}
pygments_style, pygments_dark_style = "friendly", "github-dark"
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
