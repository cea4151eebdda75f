"""From the engine's pixels to Qt's, and to the clipboard and other programs."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, QSize, Qt, QUrl
from PySide6.QtGui import QImage, QPixmap

from app.studio.results import Result
from engine.events import RgbImage


def to_qimage(image: RgbImage) -> QImage:
    """A copy that Qt owns: Qt would otherwise point into Python's bytes, whatever becomes of them."""
    return QImage(
        image.pixels, image.width, image.height, 3 * image.width, QImage.Format.Format_RGB888
    ).copy()  # fmt: skip


def scaled(image: QImage, size: QSize, ratio: float) -> QPixmap:
    """`image` as large as `size` in logical pixels, sharp on a screen with this device pixel ratio."""
    wanted = size * ratio
    smooth = Qt.TransformationMode.SmoothTransformation
    pixmap = QPixmap.fromImage(image.scaled(wanted, Qt.AspectRatioMode.IgnoreAspectRatio, smooth))
    pixmap.setDevicePixelRatio(ratio)
    return pixmap


def mime_of(result: Result) -> QMimeData:
    """A result for other programs: as its file where it has one, and as pixels."""
    mime = QMimeData()
    mime.setImageData(to_qimage(result.image))
    if result.path is not None:
        mime.setUrls([QUrl.fromLocalFile(str(result.path))])
    return mime
