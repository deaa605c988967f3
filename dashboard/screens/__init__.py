"""One file per page; Streamlit runs them from top to bottom.

The folder is not called pages: Streamlit would take its files for pages by itself and leave app.py out.
"""
