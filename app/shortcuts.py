"""Every key of the window, declared once: tooltips, shortcuts and the list under F1 follow from here."""

from __future__ import annotations

from enum import Enum

from PySide6.QtCore import QT_TRANSLATE_NOOP, QCoreApplication


class Command(Enum):
    """What a key does, in words. The order is that of the list under F1."""

    GENERATE = QT_TRANSLATE_NOOP("Shortcuts", "Generate")
    CANCEL = QT_TRANSLATE_NOOP("Shortcuts", "Cancel the run")
    NEW_SEED = QT_TRANSLATE_NOOP("Shortcuts", "New seed")
    SWAP_SIDES = QT_TRANSLATE_NOOP("Shortcuts", "Swap width and height")
    PROMPT = QT_TRANSLATE_NOOP("Shortcuts", "Go to the prompt")
    SAVE_AS = QT_TRANSLATE_NOOP("Shortcuts", "Save the picture as")
    COPY = QT_TRANSLATE_NOOP("Shortcuts", "Copy the picture, when the canvas has focus")
    FIT = QT_TRANSLATE_NOOP("Shortcuts", "Fit the picture to the window")
    ACTUAL_SIZE = QT_TRANSLATE_NOOP("Shortcuts", "Show the picture in its actual size")
    FULL_SCREEN = QT_TRANSLATE_NOOP("Shortcuts", "Full screen")
    PREVIOUS = QT_TRANSLATE_NOOP("Shortcuts", "Previous result")
    NEXT = QT_TRANSLATE_NOOP("Shortcuts", "Next result")
    COLUMN = QT_TRANSLATE_NOOP("Shortcuts", "Fold the form")
    STRIP = QT_TRANSLATE_NOOP("Shortcuts", "Fold the results")
    SETTINGS = QT_TRANSLATE_NOOP("Shortcuts", "Settings")
    KEYS = QT_TRANSLATE_NOOP("Shortcuts", "This list")
    QUIT = QT_TRANSLATE_NOOP("Shortcuts", "Quit")

    @property
    def words(self) -> str:
        return QCoreApplication.translate("Shortcuts", str(self.value))


KEYS: dict[Command, str] = {
    Command.GENERATE: "Ctrl+Return",
    Command.CANCEL: "Esc",
    Command.NEW_SEED: "Ctrl+N",
    Command.SWAP_SIDES: "Ctrl+R",
    Command.PROMPT: "Ctrl+L",
    Command.SAVE_AS: "Ctrl+S",
    Command.COPY: "Ctrl+C",
    Command.FIT: "0",
    Command.ACTUAL_SIZE: "1",
    Command.FULL_SCREEN: "F",
    Command.PREVIOUS: "[",
    Command.NEXT: "]",
    Command.COLUMN: "F8",
    Command.STRIP: "F9",
    Command.SETTINGS: "Ctrl+,",
    Command.KEYS: "F1",
    Command.QUIT: "Ctrl+Q",
}
