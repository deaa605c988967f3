"""The types that columns of others are kept as: plain values, nothing nested."""

import pyarrow as pa


def plain_type(found: pa.DataType) -> str | None:
    """The type a column of others is kept as; None for lists, structs and bytes."""
    if pa.types.is_dictionary(found):
        return plain_type(found.value_type)
    if pa.types.is_nested(found):
        return None
    if pa.types.is_boolean(found):
        return "bool"
    if pa.types.is_integer(found):
        return "int64"
    if pa.types.is_floating(found) or pa.types.is_decimal(found):
        return "float32" if found in (pa.float16(), pa.float32()) else "float64"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_temporal)
    return "string" if any(check(found) for check in text) else None
