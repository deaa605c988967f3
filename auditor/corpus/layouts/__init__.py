"""What other tools write beside or instead of plain files: img2dataset's tables, Hugging Face's Arrow folders."""
