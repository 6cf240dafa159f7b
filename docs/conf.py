"""Settings of the documentation's site: `make docs` builds it in build/docs/, with warnings as errors."""

from __future__ import annotations

import fineline

project = "fineline"
author = "The fineline authors"
version = release = fineline.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["spec", "errors"]
html_theme = "furo"
html_title = f"fineline {version}"
html_show_copyright = False

# Headings of up to this level are targets of links, as on GitHub.
myst_heading_anchors = 4
myst_links_external_new_tab = False
# Commands are copied without the prompt and without what they print.
copybutton_prompt_text = "$ "
# A single backtick in a docstring marks code.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
