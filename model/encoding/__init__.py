"""What encoding needs beside a model: the tokens of words, and the calls to a GPU."""
