"""Relations: facts about pairs of entities, such as a route between two planets.

Holds how their classes become features, and which of them an actor can choose. Their rows travel as
those of all entities.
"""
