"""What is kept in the formats of other tools: Hugging Face datasets, FiftyOne, spreadsheets."""
