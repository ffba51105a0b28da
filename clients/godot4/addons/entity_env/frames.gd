# Observations as bytes: a game's spaces, and the frames of the protocol.
extends RefCounted

const ONE = [0]  # the only actor of a global action


# One encoded observation.
class Row:
	var score = 0.0
	var metrics = []
	var counts = []  # by entity type, number of entities
	var features = []  # by entity type: PackedFloat32Arrays
	var visible = {}  # by entity type: PackedByteArrays; missing = all are visible
	var actors = []  # by action: indices; null = the action is not asked
	var choices = []  # by action: labels, or the entities that can be selected
	var flags = {}  # by action: lists of flags, one per actor; missing = everything is allowed
	var masks = {}  # the same as PackedByteArrays
	var is_left_out = {}  # by selection or part of a decision: for each actor, whether it has no choice; missing = none


var types = []  # of entities, then of relations: name and features
var actions = []  # the parts of a decision are actions
var parts = {}  # by decision: indices of its actions; the fields of its answers are `fields`
var fields = {}
var num_types  # including `Global`
var has_globals
var metrics
var _type_index = {}
var _asked_names = []  # by action: its name, or that of its decision
var _before = []  # by action: index of the action on whose choice its mask may depend, or -1
var _references = {}  # by type of relations: the types of both entities
var _global_features


func _init(game):
	for name in game.entities:
		_type_index[name] = types.size()
		types.append({"name": name, "features": game.entities[name]})
	var relations = game.get("relations", {})
	for name in relations:
		var references = relations[name].references
		_references[types.size()] = [_type_index[references.values()[0]], _type_index[references.values()[1]]]
		types.append({"name": name, "features": references.keys() + relations[name].get("features", []), "references": references.values()})
	for name in relations:
		_type_index[name] = _type_index.size()
	_global_features = game.get("global_features", [])
	has_globals = not _global_features.is_empty()
	for name in game.actions:
		var action = game.actions[name]
		if action.kind == "composite":
			parts[name] = []
			fields[name] = action.parts.keys()
			for field in action.parts:
				_add_action("%s.%s" % [name, field], action.parts[field], name)
		else:
			_add_action(name, action, name)
	num_types = types.size() + (1 if has_globals else 0)
	metrics = game.get("metrics", [])


# Adds an action, or a part of a decision; the latter depends on the parts before it.
func _add_action(name, options, asked_name):
	var action = {"name": name}
	for key in options:
		action[key] = options[key]
	_before.append(-1)
	if parts.has(asked_name):
		var given = []
		for a in parts[asked_name]:
			given.append(actions[a].name)
		if given:
			action["given"] = given
			_before[-1] = actions.size() - 1 if actions[-1].kind != "continuous" else -1
		parts[asked_name].append(actions.size())
	_asked_names.append(asked_name)
	actions.append(action)
	has_globals = has_globals or action.kind == "global_categorical"


# Encodes an observation that asks for actions; returns a `Row`, a text that says what is wrong
# with it, or null for a last observation without contents.
func encode(obs, asked, is_last = false):
	if is_last and obs.groups.is_empty() and obs.features == null:
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
			row.features.append(PackedFloat32Array())
		else:
			num_found += 1
			var values = _values_of(list, types[_type_index[name]].features)
			if values is String:
				return "%s: %s" % [name, values]
			row.counts.append(list.size())
			row.features.append(values)
	if num_found < groups.size():
		return "unknown entity type: the observation has %s, and the game %s" % [groups.keys(), _type_index.keys()]
	if has_globals and _global_features.is_empty():
		row.counts.append(1)
		row.features.append(PackedFloat32Array())
	elif has_globals:
		var values = _values_of([obs.features], _global_features)
		if values is String:
			return "the global features: " + values
		row.counts.append(1)
		row.features.append(values)
	var problem = null if _references.is_empty() else _problem_of_relations(row, obs)
	if problem == null and not obs.visibility.is_empty():
		problem = _encode_visible(row, obs)
	if problem == null:
		problem = _encode_actions(row, obs, asked)
	for name in metrics:
		row.metrics.append(float(obs.metrics.get(name, NAN)))
	return row if problem == null else problem


# The features of entities, one after another, or a text that says what is wrong.
func _values_of(list, features):
	if features.is_empty():
		return PackedFloat32Array()
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
		if kind < TYPE_BOOL or kind > TYPE_FLOAT:
			return "the features %s must be numbers, got %s in %s" % [features, value, values]
	return PackedFloat32Array(values)


# Relations refer to entities by their positions, and cannot act.
func _problem_of_relations(row, obs):
	for type in _references:
		var name = types[type].name
		var width = types[type].features.size()
		for i in range(2 * row.counts[type]):
			var other = _references[type][i % 2]
			var value = row.features[type][i / 2 * width + i % 2]
			if not (value >= 0 and value < row.counts[other] and value == floor(value)):
				return "relation %s: %s of row %s is %s, expected the position of a %s, of which the observation has %s" % [
					name, types[type].features[i % 2], i / 2, value, types[other].name, row.counts[other]]
		for role in obs.roles:
			if role[0] == name:
				return "%s is a relation, which cannot act: add it with entities" % name
	return null


func _encode_visible(row, obs):
	for name in obs.visibility:
		var flags = obs.visibility[name]
		var type = _type_index.get(name)
		if type == null or flags.size() != row.counts[type]:
			return "visible needs one flag for each %s, got %s" % [name, flags]
		row.visible[type] = _flags_of([flags])
	return null


func _encode_actions(row, obs, asked):
	var found = {}
	for a in range(actions.size()):
		var action = actions[a]
		var is_selection = action.kind == "select_entity"
		row.choices.append(obs.groups.get(action.selects, []).duplicate() if is_selection else action.labels)
		if not _asked_names[a] in asked:
			row.actors.append(null)
			continue
		found[_asked_names[a]] = true
		row.actors.append(ONE if action.kind == "global_categorical" else _actors_of(row, obs, _asked_names[a]))
		if is_selection or not obs.masks.is_empty():
			var problem = _encode_mask(row, a, obs.masks.get(action.name), obs.given.get(action.name))
			if problem != null:
				return problem
	if found.size() < asked.size():
		return "unknown action: asked for %s, and the game has %s" % [asked, names()]
	for a in row.flags:
		row.masks[a] = _flags_of(row.flags[a])
	for name in parts:
		if found.has(name):
			_join_parts(row, parts[name])
	for a in row.is_left_out:
		var actors = row.actors[a]
		row.actors[a] = []
		for i in range(actors.size()):
			if not row.is_left_out[a][i]:
				row.actors[a].append(actors[i])
		if row.flags.has(a):
			row.masks[a] = _flags_of(row.flags[a], row.is_left_out[a])
	return null


# Names that games ask for: of actions and of decisions.
func names():
	var found = []
	for name in _asked_names:
		if not name in found:
			found.append(name)
	return found


# Leaves out an actor in all parts of a decision if it has no choice in one.
func _join_parts(row, indices):
	var is_left_out = []
	for _actor in row.actors[indices[0]]:
		is_left_out.append(false)
	for a in indices:
		for i in range(is_left_out.size() if row.is_left_out.has(a) else 0):
			is_left_out[i] = is_left_out[i] or row.is_left_out[a][i]
	for a in indices if is_left_out.has(true) else []:
		row.is_left_out[a] = is_left_out


func _encode_mask(row, a, mask, given):
	var action = actions[a]
	var choices = row.choices[a]
	var actors = row.actors[a]
	var is_selection = action.kind == "select_entity"
	var is_relation = is_selection and _references.has(_type_index.get(action.selects))
	if mask != null and action.kind != "continuous":
		if given != null and (_before[a] < 0 or actions[_before[a]].name != given):
			return "the mask of %s is given %s, but it can depend only on the part directly before it, if that has choices" % [action.name, given]
		mask = [mask] if action.kind == "global_categorical" else mask
		if is_relation and given == null and not (mask.size() > 0 and mask[0] is Array):
			var own = []
			for _actor in actors:
				own.append(mask)
			mask = own
		if mask.size() != actors.size():
			return "the mask of %s needs flags for each of %s actors, got %s" % [action.name, actors.size(), mask]
		row.flags[a] = []
		for flags in mask:
			var lists = flags if given != null else [flags]
			if given != null and not (flags is Array and flags.size() == row.choices[_before[a]].size()):
				return "the mask of %s needs %s lists of flags, one per choice of %s, got %s" % [action.name, row.choices[_before[a]].size(), given, flags]
			for list in lists:
				if not list is Array or list.size() != choices.size():
					return "the mask of %s needs %s flags, got %s" % [action.name, choices.size(), list]
			row.flags[a].append(_joined(lists, 1 if given != null else _num_rows(row, a)))
	if is_relation and not choices.is_empty():
		var problem = _allow_own(row, a)
		if problem != null:
			return problem
	if is_selection and (row.flags.has(a) or choices.is_empty()):
		row.is_left_out[a] = []
		for i in range(actors.size()):
			var has_choice = not choices.is_empty() and (row.flags[a][i].has(true) or row.flags[a][i].has(1))
			row.is_left_out[a].append(not has_choice)
	return null


# Lists of flags one after another, several times.
static func _joined(lists, times):
	var found = []
	for _i in range(times):
		for list in lists:
			found += list
	return found


# Rows of an actor's mask: one per choice of the action before, if it may depend on that.
func _num_rows(row, a):
	return row.choices[_before[a]].size() if _before[a] >= 0 else 1


# Allows each actor only relations that start at it, of those that the mask allows.
func _allow_own(row, a):
	var type = _type_index[actions[a].selects]
	var source = _references[type][0]
	var width = types[type].features.size()
	var count = row.counts[type]
	var first = _first(row, source)
	var found = []
	for i in range(row.actors[a].size()):
		var place = row.actors[a][i] - first
		if place < 0 or place >= row.counts[source]:
			return "%s: an actor chooses among the relations %s that start at it, so it must be a %s: name its actions in actors" % [
				actions[a].name, actions[a].selects, types[source].name]
		var own = []
		for k in range(count * _num_rows(row, a)):
			var is_own = row.features[type][k % count * width] == place
			own.append(is_own and (not row.flags.has(a) or row.flags[a][i][k]))
		found.append(own)
	row.flags[a] = found
	return null


# Indices of an action's actors among all entities of an observation, in increasing order.
func _actors_of(row, obs, action):
	var indices = []
	for role in obs.roles:
		if role[3].is_empty() or action in role[3]:
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
	var flags = PackedByteArray()
	for i in range(lists.size()):
		if is_left_out.is_empty() or not is_left_out[i]:
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
	var out = padded(PackedByteArray(present))
	out.append_array(bytes_of(PackedInt32Array(lengths)))
	for slot in slots:
		if slot != null:
			out.append_array(padded(slot))
	return out


func _write_type(rows, t, lengths, slots):
	var values = PackedFloat32Array()
	var is_hidden = false
	for row in rows:
		lengths.append(0 if row == null else row.counts[t])
		lengths.append(0)
		if row != null:
			values.append_array(row.features[t])
			is_hidden = is_hidden or row.visible.has(t)
	var features = types[t].features if t < types.size() else _global_features
	slots.append(null if features.is_empty() else bytes_of(values))
	slots.append(null)
	if is_hidden:
		var flags = PackedByteArray()
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
		var count = row.choices[a].size() if selects and not own.is_empty() else 0
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
		has_mask = has_mask or (not own.is_empty() and row.masks.has(a))
	slots.append(null if action.kind == "global_categorical" else bytes_of(PackedInt32Array(actors)))
	slots.append(null)
	if has_mask:
		var flags = PackedByteArray()
		for row in rows:
			if row != null and row.actors[a] != null:
				flags.append_array(_or_ones(row.masks.get(a), row.actors[a].size() * row.choices[a].size() * _num_rows(row, a)))
		slots[-1] = flags
	slots.append(null)
	if selects:
		for number in num_actees:
			lengths.append(number)
		slots[-1] = bytes_of(PackedInt32Array(actees))


static func _or_ones(flags, count):
	if flags != null:
		return flags
	flags = PackedByteArray()
	for _i in range(count):
		flags.append(1)
	return flags


# The numbers of a PackedInt32Array or PackedFloat32Array as bytes: 32 bits each.
static func bytes_of(numbers):
	return numbers.to_byte_array()


# Bytes and zeros up to a multiple of 8.
static func padded(bytes, filling = 0):
	while bytes.size() % 8:
		bytes.append(filling)
	return bytes
