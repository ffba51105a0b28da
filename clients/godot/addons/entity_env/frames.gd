# Observations as bytes: a game's spaces, and the frames of the protocol.
extends Reference

const NUMBERS = [TYPE_BOOL, TYPE_INT, TYPE_REAL]
const NO_FLOATS = PoolRealArray()


# One encoded observation. Lists have one item per entity type or per action.
class Row:
	var score = 0.0
	var metrics = []
	var counts = []  # of entities
	var features = []  # PoolRealArrays
	var visible = []  # PoolByteArrays; null = all are visible
	var actors = []  # indices; null = the action is not asked
	var masks = []  # PoolByteArrays; null = everything is allowed
	var actees = []  # what an actor can choose: labels or entities
	var is_left_out = []  # for selections, by actor: whether it has no choice; null = none


var types = []  # of entities: name and features
var actions = []
var num_types  # including `Global`
var has_globals
var _type_index = {}
var _action_index = {}
var _global_features
var _metrics


func _init(game):
	for name in game.entities:
		_type_index[name] = types.size()
		types.append({"name": name, "features": game.entities[name]})
	_global_features = game.get("global_features", [])
	has_globals = not _global_features.empty()
	for name in game.actions:
		_action_index[name] = actions.size()
		var action = {"name": name}
		for key in game.actions[name]:
			action[key] = game.actions[name][key]
		actions.append(action)
		has_globals = has_globals or action.kind == "global_categorical"
	num_types = types.size() + (1 if has_globals else 0)
	_metrics = game.get("metrics", [])


# Encodes an observation that asks for actions; returns a `Row`, a text that says what is wrong
# with it, or null for a last observation without contents.
func encode(obs, asked, is_last = false):
	if is_last and obs.groups.empty() and obs.features == null:
		return null
	var row = Row.new()
	row.score = float(obs.score)
	if is_nan(row.score) or is_inf(row.score):
		return "the score must be finite, got %s" % row.score
	for name in obs.groups:
		if not _type_index.has(name):
			return "the game has no entity type %s; its types are %s" % [name, _type_index.keys()]
	for type in types:
		var problem = _encode_type(row, obs, type)
		if problem != null:
			return problem
	if has_globals:
		var values = _values_of([obs.features] if obs.features != null else [[]], _global_features)
		if values is String:
			return "the global features: " + values
		row.counts.append(1)
		row.features.append(values)
		row.visible.append(null)
	for name in asked:
		if not _action_index.has(name):
			return "the game has no action %s; its actions are %s" % [name, _action_index.keys()]
	for action in actions:
		var problem = _encode_action(row, obs, action, action.name in asked)
		if problem != null:
			return problem
	for name in _metrics:
		row.metrics.append(float(obs.metrics.get(name, NAN)))
	return row


func _encode_type(row, obs, type):
	var list = obs.groups.get(type.name)
	if list == null:
		row.counts.append(0)
		row.features.append(NO_FLOATS)
		row.visible.append(null)
		return null
	var values = _values_of(list, type.features)
	if values is String:
		return "%s: %s" % [type.name, values]
	row.counts.append(list.size())
	row.features.append(values)
	var visible = obs.visibility.get(type.name)
	if visible != null and visible.size() != list.size():
		return "%s: visible needs %s flags, got %s" % [type.name, list.size(), visible.size()]
	row.visible.append(null if visible == null else _flags_of([visible]))
	return null


# The features of entities, one after another, or a text that says what is wrong.
func _values_of(list, features):
	if features.empty():
		return NO_FLOATS
	var values = []
	for entity in list:
		if entity is Array:
			if entity.size() != features.size():
				return "expected %s numbers, got %s" % [features, entity]
			for value in entity:
				values.append(value)
		elif entity is Dictionary or is_instance_valid(entity):
			for name in features:
				values.append(entity.get(name))
		elif entity is Vector2 and features.size() == 2:
			values.append(entity.x)
			values.append(entity.y)
		else:
			return "expected an entity with %s, got %s" % [features, entity]
	for i in range(values.size()):
		if not typeof(values[i]) in NUMBERS:
			var name = features[i % features.size()]
			return "the feature '%s' must be a number, got %s" % [name, values[i]]
	return PoolRealArray(values)


func _encode_action(row, obs, action, is_asked):
	row.actors.append(null)
	row.masks.append(null)
	row.is_left_out.append(null)
	var selects = action.kind == "select_entity"
	var choices = obs.groups.get(action.selects, []).duplicate() if selects else action.labels
	row.actees.append(choices)
	if not is_asked:
		return null
	var is_global = action.kind == "global_categorical"
	var actors = [0] if is_global else _actors_of(row, obs, action.name)
	var mask = null
	if obs.masks.has(action.name) and action.kind != "continuous":
		mask = obs.masks[action.name]
		mask = [mask] if is_global else mask
		var problem = _problem_of_mask(mask, actors.size(), choices.size())
		if problem != null:
			return "the mask of %s needs %s" % [action.name, problem]
	if selects and (mask != null or choices.empty()):
		row.is_left_out[-1] = []
		var kept = []
		for i in range(actors.size()):
			var has_choice = mask != null and (mask[i].has(true) or mask[i].has(1))
			row.is_left_out[-1].append(not has_choice)
			if has_choice:
				kept.append(i)
		actors = _items(actors, kept)
		mask = _items(mask, kept) if mask != null else null
	row.actors[-1] = actors
	row.masks[-1] = null if mask == null else _flags_of(mask)
	return null


static func _problem_of_mask(mask, num_actors, num_choices):
	if mask.size() != num_actors:
		return "flags for each of %s actors, got %s" % [num_actors, mask]
	for flags in mask:
		if not flags is Array or flags.size() != num_choices:
			return "%s flags, got %s" % [num_choices, flags]
	return null


static func _items(list, indices):
	var items = []
	for i in indices:
		items.append(list[i])
	return items


# Indices of an action's actors among all entities of an observation, in increasing order.
func _actors_of(row, obs, action):
	var indices = []
	for role in obs.roles:
		if role[3].empty() or action in role[3]:
			var first = role[1] + _first(row, _type_index[role[0]])
			for i in range(role[2]):
				indices.append(first + i)
	if obs.roles.size() > 1:
		indices.sort()
	return indices


# Index of the first entity of a type.
func _first(row, type):
	var first = 0
	for t in range(type):
		first += row.counts[t]
	return first


static func _flags_of(lists):
	var flags = PoolByteArray()
	for list in lists:
		for flag in list:
			flags.append(1 if flag else 0)
	return flags


# The frame of rows; null = an empty row.
func write(rows):
	var lengths = []  # 64-bit numbers as pairs of 32-bit numbers
	var slots = []  # bytes; null = absent
	for t in range(num_types):
		_write_type(rows, t, lengths, slots)
	for a in range(actions.size()):
		_write_action(rows, a, lengths, slots)
	var present = []
	for slot in slots:
		present.append(0 if slot == null else 1)
	var out = padded(PoolByteArray(present))
	out.append_array(bytes_of(PoolIntArray(lengths)))
	for slot in slots:
		if slot != null:
			out.append_array(padded(slot))
	return out


func _write_type(rows, t, lengths, slots):
	var values = PoolRealArray()
	var is_hidden = false
	for row in rows:
		lengths.append(0 if row == null else row.counts[t])
		lengths.append(0)
		if row != null:
			values.append_array(row.features[t])
			is_hidden = is_hidden or row.visible[t] != null
	var features = types[t].features if t < types.size() else _global_features
	slots.append(null if features.empty() else bytes_of(values))
	slots.append(null)
	if is_hidden:
		var flags = PoolByteArray()
		for row in rows:
			if row != null:
				flags.append_array(_or_ones(row.visible[t], row.counts[t]))
		slots[-1] = flags


func _write_action(rows, a, lengths, slots):
	var action = actions[a]
	var selects = action.kind == "select_entity"
	var actors = []
	var actees = []
	var num_actees = []
	var has_mask = false
	for row in rows:
		var own = [] if row == null or row.actors[a] == null else row.actors[a]
		var count = row.actees[a].size() if selects and not own.empty() else 0
		lengths.append(own.size())
		lengths.append(0)
		num_actees.append(count)
		num_actees.append(0)
		for actor in own:
			actors.append(actor)
			actors.append(0)
		if count:
			var first = _first(row, _type_index[action.selects])
			for i in range(count):
				actees.append(first + i)
				actees.append(0)
		has_mask = has_mask or (not own.empty() and row.masks[a] != null)
	slots.append(null if action.kind == "global_categorical" else bytes_of(PoolIntArray(actors)))
	slots.append(null)
	if has_mask:
		var flags = PoolByteArray()
		for row in rows:
			if row != null and row.actors[a] != null:
				flags.append_array(_or_ones(row.masks[a], row.actors[a].size() * row.actees[a].size()))
		slots[-1] = flags
	slots.append(null)
	if selects:
		for number in num_actees:
			lengths.append(number)
		slots[-1] = bytes_of(PoolIntArray(actees))


static func _or_ones(flags, count):
	if flags != null:
		return flags
	flags = PoolByteArray()
	for _i in range(count):
		flags.append(1)
	return flags


# The numbers of a PoolIntArray or PoolRealArray as bytes: 32 bits each.
static func bytes_of(numbers):
	# `var2bytes` writes the type and the length first
	return PoolByteArray() if numbers.size() == 0 else var2bytes(numbers).subarray(8, -1)


# Bytes and zeros up to a multiple of 8.
static func padded(bytes, filling = 0):
	while bytes.size() % 8:
		bytes.append(filling)
	return bytes
