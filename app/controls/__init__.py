"""Controls that know nothing of pictures: numbers that take maths, folds, icon buttons, the notice bar."""
