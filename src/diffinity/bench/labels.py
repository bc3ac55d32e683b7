"""Positions of the labels of points in a plot, so that no two overlap and none hides a point."""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top

DIRECTIONS = 16  # of a label from its point
NEAREST, FARTHEST, STEP = 6.0, 400.0, 6.0  # distances from the point to the name's box


def place(
    points: Sequence[Point],
    sizes: Sequence[Point],
    bounds: Box,
    obstacles: Sequence[Box] = (),
    radius: float = 4.0,
) -> list[Box]:
    """A box for the label of each point: the nearest free place inside `bounds`.

    `sizes` are widths and heights of the names. A box overlaps no other box, no point (a square of `radius` around
    it) and no obstacle. If there is no such place, the box is to the right of its point.

    >>> place([(50.0, 50.0), (50.0, 52.0)], [(20.0, 8.0), (20.0, 8.0)], (0.0, 0.0, 100.0, 100.0))
    [(56.0, 46.0, 76.0, 54.0), (24.0, 48.0, 44.0, 56.0)]
    """
    occupied: list[Box] = [*obstacles, *((x - radius, y - radius, x + radius, y + radius) for x, y in points)]
    boxes = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        candidates = _candidates(x, y, width, height)
        free_boxes = (
            box for box in candidates if inside(box, bounds) and not any(overlap(box, b) for b in occupied)
        )
        box = next(free_boxes, (x + NEAREST, y - height / 2, x + NEAREST + width, y + height / 2))
        boxes.append(box)
        occupied.append(box)
    return boxes


def overlap(box: Box, other: Box) -> bool:
    """Whether two boxes have an area in common.

    >>> overlap((0, 0, 2, 2), (1, 1, 3, 3)), overlap((0, 0, 2, 2), (2, 0, 3, 2))
    (True, False)
    """
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def inside(box: Box, bounds: Box) -> bool:
    """Whether a box lies within the bounds.

    >>> inside((1, 1, 2, 2), (0, 0, 3, 3)), inside((1, 1, 4, 2), (0, 0, 3, 3))
    (True, False)
    """
    return bounds[0] <= box[0] and bounds[1] <= box[1] and box[2] <= bounds[2] and box[3] <= bounds[3]


def _candidates(x: float, y: float, width: float, height: float) -> list[Box]:
    """Boxes around a point, the nearest first; at equal distance the right box first, then the left box."""
    order = sorted(range(DIRECTIONS), key=lambda i: (i % (DIRECTIONS // 2), i))
    boxes = []
    distance = NEAREST
    while distance <= FARTHEST:
        for i in order:
            cos, sin = math.cos(2 * math.pi * i / DIRECTIONS), math.sin(2 * math.pi * i / DIRECTIONS)
            # The middle of a box whose side towards the point is `distance` away from it.
            middle_x = x + round(cos * (distance + width / 2), 6)
            middle_y = y + round(sin * (distance + height / 2), 6)
            boxes.append(
                (middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2)
            )
        distance += STEP
    return boxes
