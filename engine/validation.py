"""What is wrong with values that pydantic refused, in words for people."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

# By pydantic's type of error, https://docs.pydantic.dev/latest/errors/validation_errors/; braces hold its context.
_WORDS = {
    "greater_than_equal": "must be at least {ge:,}",
    "less_than_equal": "must be at most {le:,}",
    "string_too_long": "is longer than {max_length:,} characters",
    "string_type": "isn't text",
    "string_unicode": "isn't valid text",
    "int_type": "isn't a whole number",
    "int_parsing": "isn't a whole number",
    "int_parsing_size": "isn't a number of a usable size",
    "int_from_float": "isn't a whole number",
    "float_type": "isn't a number",
    "float_parsing": "isn't a number",
    "finite_number": "isn't a finite number",
    "bool_type": "is neither true nor false",
    "bool_parsing": "is neither true nor false",
    "enum": "isn't {expected}",
    "literal_error": "isn't {expected}",
    "missing": "is missing",
    "extra_forbidden": "isn't known",
    "path_type": "isn't a path",
    "tuple_type": "isn't a list",
    "list_type": "isn't a list",
    "too_short": "is too short",
    "too_long": "is too long",
    "dict_type": "isn't a group of named values",
    "model_type": "isn't a group of named values",
    "json_invalid": "isn't valid JSON",
    "json_type": "isn't JSON",
    "value_error": "can't be used: {error}",
}


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Where the first fault lies, as field names joined by dots ("" for the whole), and what is wrong with it.

    The two make a clause: "steps", "must be at most 150".
    """
    fault = error.errors(include_url=False, include_input=False)[0]
    context: dict[str, Any] = fault.get("ctx") or {}
    words = _WORDS.get(fault["type"], "can't be used")
    return ".".join(map(str, fault["loc"])), words.format(**context)
