"""One file per page; Streamlit runs them from top to bottom."""
