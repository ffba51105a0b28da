"""Entities that are pictures are drawn as pictures, pixel by pixel."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from entity_env import Entity, Observation, ObsSpace
from entity_env.core.observation import PlainObservation
from entity_env.views import Look, SeenObservation
from entity_env.views.drawing import Drawing
from entity_env.views.pictures import Painter

RNG = np.random.default_rng(1)


def seen(*pictures: NDArray[Any], plain: bool = False) -> SeenObservation:
    shape: Any = pictures[0].shape
    names = [f"p{i}" for i in range(pictures[0].size)]
    space = ObsSpace((), {"Env": Entity(names, True, shape)})
    rows = np.array([each.ravel() for each in pictures], np.float32)
    if plain:
        return SeenObservation(PlainObservation(reward=0.0, features={"Env": rows.tolist()}), space)
    return SeenObservation(Observation(reward=0.0, features={"Env": rows}), space)


def shown(*observations: SeenObservation) -> NDArray[np.uint8]:
    """Pixels of the last observation's picture."""
    drawing = Drawing(Look(), observations[0].obs_space)
    for each in observations:
        drawing.include(each)
    [image] = [shape for shape in drawing.draw(observations[-1]).shapes if shape.kind == "image"]
    (x, y), (width, height) = image.center, image.size
    assert width / 2 < x <= drawing.size[0] - width / 2
    assert height / 2 < y <= drawing.size[1] - height / 2
    assert image.of == 0
    Painter(drawing.size).image([image])  # it can be read
    content = base64.b64decode(image.text.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(content)))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("shape", [(210, 160, 3), (240, 5, 3), (250, 1, 1), (1, 300, 3)])
def test_colors_and_grays_are_those_of_the_observation(
    plain: bool, shape: tuple[int, int, int]
) -> None:
    picture = RNG.integers(0, 256, shape, np.uint8)
    expected = picture[:, :, 0] if shape[2] == 1 else picture
    assert (shown(seen(picture, plain=plain)) == expected).all()


def test_other_channels_are_side_by_side() -> None:
    frames = RNG.integers(0, 256, (84, 70, 4), np.uint8)
    assert (shown(seen(frames)) == np.concatenate(list(np.moveaxis(frames, 2, 0)), axis=1)).all()


def test_small_pictures_are_enlarged() -> None:
    picture = RNG.integers(0, 256, (8, 6, 3), np.uint8)
    assert (shown(seen(picture)) == picture.repeat(30, axis=0).repeat(30, axis=1)).all()


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (-3e5, 7.0), (0.0, 1000.0), (-5.0, 0.0)]
)
def test_the_lowest_number_is_black_and_the_highest_white(low: float, high: float) -> None:
    whole = np.linspace(low, high, 256).reshape(256, 1, 1)
    assert (shown(seen(whole))[:, 0] == np.arange(256)).all()
    same = np.full((256, 1, 1), low)
    assert (shown(seen(whole), seen(same)) == 0).all()  # the range is that of the episode


def test_a_dark_picture_is_black() -> None:
    assert (shown(seen(np.zeros((300, 2, 3)))) == 0).all()


def test_several_pictures_and_many_channels_are_rows_of_a_table() -> None:
    picture = RNG.integers(0, 256, (8, 6, 3), np.uint8)
    for observations in (
        [seen(picture, picture)],
        [seen(picture), seen(picture, picture), seen(picture)],
        [seen(np.zeros((4, 4, 17)))],
    ):
        drawing = Drawing(Look(), observations[0].obs_space)
        for each in observations:
            drawing.include(each)
        kinds = {shape.kind for shape in drawing.draw(observations[-1]).shapes}
        assert "image" not in kinds
