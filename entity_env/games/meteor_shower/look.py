"""Drawing of `meteors`."""

from entity_env.views import Look, Style

look = Look(
    styles={"Body": Style(shape="circle", color="is_ship", size=0.7, glyph="●")},
)
