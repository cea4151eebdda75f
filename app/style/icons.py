"""Line icons on a 16 px grid, drawn from SVG in the colours of the tokens."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QGuiApplication, QIcon, QImage, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from app.style.tokens import Tokens

SIZE = 16
_FRAME = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="none" stroke="{colour}" stroke-width="1.4" '
    'stroke-linecap="round" stroke-linejoin="round">{shape}</svg>'
)
_DOT = '<circle cx="{}" cy="{}" r="1" fill="{{colour}}" stroke="none"/>'
_SHAPES = {
    "dice": '<rect x="2.2" y="2.2" width="11.6" height="11.6" rx="2.6"/>'
    + "".join(_DOT.format(x, y) for x, y in ((5.3, 5.3), (10.7, 5.3), (8, 8), (5.3, 10.7), (10.7, 10.7))),
    "swap": '<path d="M2.5 5.5h10M10 3l2.5 2.5L10 8M13.5 10.5h-10M6 8l-2.5 2.5L6 13"/>',
    "settings": '<path d="M2 4.5h6.2M11.8 4.5H14M2 11.5h2.2M7.8 11.5H14"/>'
    '<circle cx="10" cy="4.5" r="1.8"/><circle cx="6" cy="11.5" r="1.8"/>',
    "column": '<rect x="1.8" y="2.8" width="12.4" height="10.4" rx="2"/><path d="M6 2.8v10.4"/>',
    "strip": '<rect x="1.8" y="2.8" width="12.4" height="10.4" rx="2"/><path d="M10.6 2.8v10.4"/>',
    "keys": '<rect x="1.5" y="3.8" width="13" height="8.4" rx="1.8"/>'
    '<path d="M4.2 6.5h.1M6.8 6.5h.1M9.3 6.5h.1M11.8 6.5h.1M5 9.6h6"/>',
    "right": '<path d="M6 3.5 10.5 8 6 12.5"/>',
    "down": '<path d="M3.5 6 8 10.5 12.5 6"/>',
    "plus": '<path d="M8 3.2v9.6M3.2 8h9.6"/>',
    "close": '<path d="m4 4 8 8M12 4l-8 8"/>',
    "bad": '<circle cx="8" cy="8" r="6.2"/><path d="M8 4.8v3.8M8 11.1v.1"/>',
    "warn": '<path d="M8 2.2 14.4 13.4H1.6Z"/><path d="M8 6.5v3M8 11.4v.1"/>',
    "note": '<circle cx="8" cy="8" r="6.2"/><path d="M8 7.4v3.8M8 4.9v.1"/>',
    "check": '<path d="m3.2 8.4 3.2 3.2 6.4-7"/>',
    "lamp": '<path d="M8 1.8v2.4M3.2 10.4a4.8 4.8 0 0 1 9.6 0Z"/><path d="M6.4 10.6a1.6 1.6 0 0 0 3.2 0"/>'
    '<path d="M8 4.2v1.4"/>',
}


def pixmap(name: str, colour: str, size: int = SIZE, scale: float = 1.0) -> QPixmap:
    """One icon in one colour, `size` logical pixels wide, sharp at the scale of the screen it is for."""
    return QPixmap.fromImage(_image(name, colour, size, scale))


def icon(name: str, tokens: Tokens, checked_name: str | None = None, colour: str | None = None) -> QIcon:
    """An icon for buttons, sharp on every screen that is there.

    Muted, text-coloured under the pointer or when checked, faint when disabled.
    """
    made = QIcon()
    scales = {1.0, *(screen.devicePixelRatio() for screen in QGuiApplication.screens())}
    states = (
        (QIcon.Mode.Normal, QIcon.State.Off, name, colour or tokens.muted),
        (QIcon.Mode.Active, QIcon.State.Off, name, tokens.text),
        (QIcon.Mode.Normal, QIcon.State.On, checked_name or name, tokens.text),
        (QIcon.Mode.Active, QIcon.State.On, checked_name or name, tokens.text),
        (QIcon.Mode.Disabled, QIcon.State.Off, name, tokens.line),
        (QIcon.Mode.Disabled, QIcon.State.On, checked_name or name, tokens.line),
    )
    for mode, state, shape, shade in states:
        for scale in scales:
            made.addPixmap(pixmap(shape, shade, SIZE, scale), mode, state)
    return made


@lru_cache(maxsize=512)
def _image(name: str, colour: str, size: int, scale: float) -> QImage:
    svg = _FRAME.format(colour=colour, shape=_SHAPES[name].format(colour=colour))
    image = QImage(QSize(size, size) * scale, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    QSvgRenderer(QByteArray(svg.encode())).render(painter, QRectF(0, 0, image.width(), image.height()))
    painter.end()
    image.setDevicePixelRatio(scale)
    return image


def application_icon() -> QIcon:
    """The lamp, lit, on a dark ground: readable on any desktop."""
    made = QIcon()
    for side in (16, 24, 32, 48, 64, 128, 256):
        image = QImage(side, side, QImage.Format.Format_ARGB32_Premultiplied)
        image.fill(Qt.GlobalColor.transparent)
        painter = QPainter(image)
        QSvgRenderer(QByteArray(_LOGO.encode())).render(painter, QRectF(0, 0, side, side))
        painter.end()
        made.addPixmap(QPixmap.fromImage(image))
    return made


_LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64">'
    '<rect width="64" height="64" rx="14" fill="#1F2023"/>'
    '<path d="M32 8v12" stroke="#A3A19B" stroke-width="4" stroke-linecap="round"/>'
    '<path d="M14 40a18 18 0 0 1 36 0Z" fill="#F0643C"/>'
    '<path d="M25 44a7 7 0 0 0 14 0Z" fill="#FFD9A8"/></svg>'
)
