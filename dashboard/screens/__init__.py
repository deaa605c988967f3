"""One file per page; Streamlit runs each file from top to bottom.

The folder is not named `pages`, because Streamlit would then build its own navigation and ignore app.py.
"""
