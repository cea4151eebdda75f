"""Numbers as people type them: `512`, `512*1.5`, `1,024`, `2**7`."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable

MAX_LENGTH = 64
MAX_EXPONENT = 64

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}

_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-", "^": "**", "_": ""})
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")


def evaluate(text: str) -> float:
    """The finite value of an arithmetic expression of numbers, + - * / // % ** and brackets; × ÷ and − are read too.

    Nothing is executed: names, calls and everything else raise `ValueError`, as does a result that isn't finite.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError("too long")
    plain = _without_commas(text.strip()).translate(_SIGNS)
    try:
        value = _value(ast.parse(plain, mode="eval").body)
    except (SyntaxError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError("not arithmetic") from error
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _without_commas(text: str) -> str:
    """`1,024` is a thousand and more, `7,5` seven and a half."""
    return _DECIMAL_COMMA.sub(".", _THOUSANDS.sub(lambda match: match.group().replace(",", ""), text))


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("not a number")
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = _value(right)
            if abs(exponent) > MAX_EXPONENT:
                raise ValueError("too large")
            power: float | complex = _value(left) ** exponent
            if isinstance(power, complex):
                raise ValueError("not real")
            return float(power)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left), _value(right))
    raise ValueError("not arithmetic")
