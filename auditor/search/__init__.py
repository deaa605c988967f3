"""Search: the nearest media or captions of an audit to a text, a picture, or one of its own rows."""
