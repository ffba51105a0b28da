# Observations as bytes: a game's spaces, and the frames of the protocol.
extends Reference

const ONE = [0]  # the only actor of a global action


# One encoded observation.
class Row:
	var score = 0.0
	var metrics = []
	var counts = []  # by entity type, number of entities
	var features = []  # by entity type: PoolRealArrays
	var visible = {}  # by entity type: PoolByteArrays; missing = all are visible
	var actors = []  # by action: indices; null = the action is not asked
	var choices = []  # by action: labels, or the entities that can be selected
	var masks = {}  # by action: PoolByteArrays; missing = everything is allowed
	var is_left_out = {}  # by selection: for each actor, whether it has no choice; missing = none


var types = []  # of entities: name and features
var actions = []
var num_types  # including `Global`
var has_globals
var metrics
var _type_index = {}
var _action_index = {}
var _global_features


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
	metrics = game.get("metrics", [])


# Encodes an observation that asks for actions; returns a `Row`, a text that says what is wrong
# with it, or null for a last observation without contents.
func encode(obs, asked, is_last = false):
	if is_last and obs.groups.empty() and obs.features == null:
		return null
	var row = Row.new()
	row.score = float(obs.score)
	if is_nan(row.score) or is_inf(row.score):
		return "the score must be finite, got %s" % row.score
	var groups = obs.groups
	var num_found = 0
	for name in _type_index:
		var list = groups.get(name)
		if list == null:
			row.counts.append(0)
			row.features.append(PoolRealArray())
		else:
			num_found += 1
			var values = _values_of(list, types[_type_index[name]].features)
			if values is String:
				return "%s: %s" % [name, values]
			row.counts.append(list.size())
			row.features.append(values)
	if num_found < groups.size():
		return "unknown entity type: the observation has %s, and the game %s" % [groups.keys(), _type_index.keys()]
	if has_globals and _global_features.empty():
		row.counts.append(1)
		row.features.append(PoolRealArray())
	elif has_globals:
		var values = _values_of([obs.features], _global_features)
		if values is String:
			return "the global features: " + values
		row.counts.append(1)
		row.features.append(values)
	var problem = null if obs.visibility.empty() else _encode_visible(row, obs)
	if problem == null:
		problem = _encode_actions(row, obs, asked)
	for name in metrics:
		row.metrics.append(float(obs.metrics.get(name, NAN)))
	return row if problem == null else problem


# The features of entities, one after another, or a text that says what is wrong.
func _values_of(list, features):
	if features.empty():
		return PoolRealArray()
	var values = []
	for entity in list:
		if entity is Array and entity.size() == features.size():
			for value in entity:
				values.append(value)
		elif entity is Dictionary or entity is Object and is_instance_valid(entity):
			for name in features:
				values.append(entity.get(name))
		elif entity is Vector2 and features.size() == 2:
			values.append(entity.x)
			values.append(entity.y)
		else:
			return "expected the features %s, got %s" % [features, entity]
	for value in values:
		var kind = typeof(value)
		if kind < TYPE_BOOL or kind > TYPE_REAL:
			return "the features %s must be numbers, got %s in %s" % [features, value, values]
	return PoolRealArray(values)


func _encode_visible(row, obs):
	for name in obs.visibility:
		var flags = obs.visibility[name]
		var type = _type_index.get(name)
		if type == null or flags.size() != row.counts[type]:
			return "visible needs one flag for each %s, got %s" % [name, flags]
		row.visible[type] = _flags_of([flags])
	return null


func _encode_actions(row, obs, asked):
	var num_found = 0
	for a in range(actions.size()):
		var action = actions[a]
		var is_selection = action.kind == "select_entity"
		row.choices.append(obs.groups.get(action.selects, []).duplicate() if is_selection else action.labels)
		if not action.name in asked:
			row.actors.append(null)
			continue
		num_found += 1
		row.actors.append(ONE if action.kind == "global_categorical" else _actors_of(row, obs, action.name))
		if is_selection or not obs.masks.empty():
			var problem = _encode_mask(row, a, obs.masks.get(action.name))
			if problem != null:
				return problem
	if num_found < asked.size():
		return "unknown action: asked for %s, and the game has %s" % [asked, _action_index.keys()]
	return null


func _encode_mask(row, a, mask):
	var action = actions[a]
	var choices = row.choices[a]
	var actors = row.actors[a]
	if mask != null and action.kind != "continuous":
		mask = [mask] if action.kind == "global_categorical" else mask
		if mask.size() != actors.size():
			return "the mask of %s needs flags for each of %s actors, got %s" % [action.name, actors.size(), mask]
		for flags in mask:
			if not flags is Array or flags.size() != choices.size():
				return "the mask of %s needs %s flags, got %s" % [action.name, choices.size(), flags]
		row.masks[a] = _flags_of(mask)
	if action.kind == "select_entity" and (mask != null or choices.empty()):
		row.is_left_out[a] = []
		row.actors[a] = []
		for i in range(actors.size()):
			var has_choice = not choices.empty() and (mask[i].has(true) or mask[i].has(1))
			row.is_left_out[a].append(not has_choice)
			if has_choice:
				row.actors[a].append(actors[i])
		if mask != null:
			row.masks[a] = _flags_of(mask, row.is_left_out[a])
	return null


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


static func _flags_of(lists, is_left_out = []):
	var flags = PoolByteArray()
	for i in range(lists.size()):
		if is_left_out.empty() or not is_left_out[i]:
			for flag in lists[i]:
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
			is_hidden = is_hidden or row.visible.has(t)
	var features = types[t].features if t < types.size() else _global_features
	slots.append(null if features.empty() else bytes_of(values))
	slots.append(null)
	if is_hidden:
		var flags = PoolByteArray()
		for row in rows:
			if row != null:
				flags.append_array(_or_ones(row.visible.get(t), row.counts[t]))
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
		var count = row.choices[a].size() if selects and not own.empty() else 0
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
		has_mask = has_mask or (not own.empty() and row.masks.has(a))
	slots.append(null if action.kind == "global_categorical" else bytes_of(PoolIntArray(actors)))
	slots.append(null)
	if has_mask:
		var flags = PoolByteArray()
		for row in rows:
			if row != null and row.actors[a] != null:
				flags.append_array(_or_ones(row.masks.get(a), row.actors[a].size() * row.choices[a].size()))
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
