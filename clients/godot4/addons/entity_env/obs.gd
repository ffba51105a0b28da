# An observation: entities, actors, masks, and the score so far. Calls can be chained.
#
# An entity is a list of numbers, in the order of its type's features, or anything that has the
# features by name: a dictionary, a node, a Vector2.
extends RefCounted

var score
var groups = {}  # entities by type
var roles = []  # groups of actors: type, index of the first, count, actions (empty: all)
var features = null
var masks = {}
var visibility = {}
var metrics = {}


func _init(score_so_far = 0.0):
	score = score_so_far


# Adds entities of a type.
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


# Allows only some choices: one flag per label; for actors, one list of flags per actor.
func mask(action, flags):
	masks[action] = flags
	return self


# Hides the entities of a type whose flag is false from the policy.
func visible(type, flags):
	visibility[type] = flags
	return self


func metric(name, value):
	metrics[name] = value
	return self
