"""What an agent observed, drawn: shapes, looks, and what draws shapes as text, pages and pictures.

Not here: agents and replays, which know how an episode went; what only the terminal's commands use.
"""

from entity_env.views.animation import Animation as Animation
from entity_env.views.find_look import find_look as find_look
from entity_env.views.look import Board as Board, Look as Look, Style as Style
from entity_env.views.scene import Scene as Scene, data_uri as data_uri
from entity_env.views.seen import SeenEntity as SeenEntity, SeenObservation as SeenObservation
