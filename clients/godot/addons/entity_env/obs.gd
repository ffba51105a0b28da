# An observation: entities, actors, masks, and the score so far. Calls can be chained.
#
# An entity is a list of numbers, in the order of its type's features, or anything that has the
# features by name: a dictionary, a node, a Vector2.
extends Reference

var score
var groups = {}  # entities by type
var roles = []  # groups of actors: type, index of the first, count, actions (empty: all)
var features = null
var masks = {}
var given = {}  # by action with a mask that depends on another, the name of that one
var visibility = {}
var metrics = {}


func _init(score_so_far = 0.0):
	score = score_so_far


# Adds entities of a type, or relations, whose references are positions of entities among those of
# their types, from 0.
func entities(type, list):
	groups[type] = groups[type] + list if groups.has(type) else list
	return self


# Adds entities that perform the given actions, or all that are asked.
func actors(type, list, actions = []):
	roles.append([type, groups[type].size() if groups.has(type) else 0, list.size(), actions])
	return entities(type, list)


func globals(entity):
	features = entity
	return self


# Allows only some choices: one flag per label; for actors, one list of flags per actor. If an action
# selects relations, an actor can only choose those that start at it, and one list serves all actors.
#
# The mask of a part of a decision, such as "Send.trucks", may depend on the part directly before:
# with `given_part`, such as "Send.town", there is a list of flags for each choice of that part.
func mask(action, flags, given_part = null):
	masks[action] = flags
	given.erase(action)
	if given_part != null:
		given[action] = given_part
	return self


# Hides the entities of a type whose flag is false from the policy.
func visible(type, flags):
	visibility[type] = flags
	return self


func metric(name, value):
	metrics[name] = value
	return self
