"""Streamlit pages over an audit."""
