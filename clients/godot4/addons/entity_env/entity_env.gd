# Plays, trains and records games of Godot 4 with entity_env. README.md has an example.
#
# A node that serves a game: it connects to ENTITY_ENV_ADDRESS, plays the copies that the host asks
# for, and quits the program when the host has finished. Once per physics frame, it answers the host
# and waits for its actions, until a game waits for something else, such as the next physics frame.
extends Node

const Agent = preload("agent.gd")
const Frames = preload("frames.gd")
const Obs = preload("obs.gd")
const SplitMix64 = preload("split_mix_64.gd")

enum { HELLO = 1, START, READY, RESET, ACT, STEP, ERROR, CLOSE }
const FAILED = 4
const NEW = 8
const MAGIC = 0x31454E45  # "ENE1"
const MAX_JSON = 1048576
const MAX_BRACKETS = 1000  # the parser refuses very deep lists
const MAX_ENVS = 65536
const MAX_INT = 9007199254740992
const KEYS = ["name", "play", "entities", "relations", "actions", "global_features", "num_agents", "settings", "metrics", "version", "doc", "check"]
const MAX_LATE_ACTS = 1000
const CONNECT_MS = 60000


# An action with one label for the whole observation.
static func global_categorical(labels):
	return {"kind": "global_categorical", "labels": labels}


# An action with one label for each actor.
static func categorical(labels):
	return {"kind": "categorical", "labels": labels}


# An action that selects an entity of a type for each actor.
static func select_entity(type):
	return {"kind": "select_entity", "selects": type}


# An action with one number per label for each actor: `continuous({"force": [-1, 1]})`.
static func continuous(bounds):
	var action = {"kind": "continuous", "labels": bounds.keys(), "low": [], "high": []}
	for bound in bounds.values():
		action.low.append(float(bound[0]))
		action.high.append(float(bound[1]))
	return action


# A decision in several parts, which are actions, by name. They are chosen in order, each knowing those
# before: `composite({"town": select_entity("Town"), "trucks": categorical(["ONE", "TWO"])})`.
static func composite(parts):
	return {"kind": "composite", "parts": parts}


# One episode of a copy.
class Run:
	var server
	var copy
	var agents = []
	var is_current = true
	var has_returned = false
	var num_late_acts = 0

	func _init(the_server, the_copy):
		server = the_server
		copy = the_copy
		for i in range(server.num_agents):
			agents.append(Agent.new(self, i, copy.index))

	# Called when `play` has returned.
	func returned(_result = null):
		has_returned = true
		if not is_current:
			return
		var num_ended = 0
		var is_playing = false
		for agent in agents:
			num_ended += 1 if agent._has_ended else 0
			is_playing = is_playing or agent._is_playing
		if is_playing or not num_ended:
			fail("play returned, but an agent has not ended its episode: call game_over, or correct the script error printed above")

	func waits():
		for agent in agents:
			if agent._is_awaited:
				return true
		return false

	# Answers a call of `act` that cannot be sent.
	func resume_later(agent):
		if not is_current:
			num_late_acts += 1
			if num_late_acts > MAX_LATE_ACTS:
				return server.die("play must return when act gives null")
		server.resumed.append(agent)

	func end(agent, flags, row, message = ""):
		copy.ends.append([agent.index, flags + (NEW if copy.is_new else 0), row, message])

	func fail(message):
		if not is_current:
			return
		push_error(message)
		var num_ends = copy.ends.size()
		for agent in agents:
			if not agent._has_ended:
				end(agent, FAILED, null, message)
		if copy.ends.size() == num_ends:
			server.die(message)
		leave()

	# Lets `play` return: its calls of `act` give null.
	func leave():
		is_current = false
		copy.run = null
		for agent in agents:
			agent._row = null
			agent.answer = null
			if agent._is_awaited:
				agent._is_awaited = false
				server.resumed.append(agent)
		agents = []


class Copy:
	var index
	var run = null
	var flags = 0
	var is_new = false
	var seed_at = 0  # position of the next episode's seed in the request
	var ends = []

	func _init(number):
		index = number

	func begin(position):
		flags = 0
		is_new = false
		ends = []
		seed_at = position


var frames
var num_agents
var resumed = []  # agents whose answers are there
var _game
var _copies = []
var _settings = {}
var _hold = false
var _request = StreamPeerBuffer.new()
var _stepping = null  # copies of the current request
var _connection = StreamPeerTCP.new()
var _is_over = false


# The game is a dictionary. `play` is a Callable that is called with an agent (or a list of them, if
# `num_agents` is above 1), a seed and the settings, and plays one episode. `entities` has the
# features of each type, and `actions` the actions, by name. The other keys are optional: `relations`
# has facts about pairs of entities, `{"Road": {"references": {"start": "Town", "end": "Town"},
# "features": ["hours"]}}`. `check` is
# a Callable that gets the settings and returns a text if they cannot be played.
func _init(game):
	_game = game
	process_physics_priority = -1000  # actions take effect in the frame in which they arrive
	process_mode = Node.PROCESS_MODE_ALWAYS


func _ready():
	var problem = _problem_of_game()
	if problem == null:
		problem = _problem_of_connection()
	if problem != null:
		printerr("EntityEnv: %s" % problem)
		return _quit(1)
	_send_json(HELLO, _with_optional({
		"protocol": 1,
		"name": _game.name,
		"token": OS.get_environment("ENTITY_ENV_TOKEN"),
		"settings": _settings,
	}, ["version", "doc"]))


func _physics_process(_delta):
	while not _is_over and _is_settled():
		if _stepping != null:
			_answer()
		_receive()


func _problem_of_game():
	for key in _game:
		if not key in KEYS:
			return "the game has an unknown key '%s'; its keys are %s" % [key, KEYS]
	for key in ["name", "play", "entities", "actions"]:
		if not _game.has(key):
			return "the game needs the key '%s'" % key
	for key in ["play", "check"]:
		if _game.has(key) and not (_game[key] is Callable and _game[key].is_valid()):
			return "the key '%s' must be a function that exists: %s" % [key, key]
	for name in _game.actions:
		var problem = _problem_of_action(name, _game.actions[name])
		if problem != null:
			return problem
	for name in _game.get("relations", {}):
		var problem = _problem_of_relation(name, _game.relations[name])
		if problem != null:
			return problem
	_settings = _game.get("settings", {}).duplicate()
	num_agents = _game.get("num_agents", 1)
	frames = Frames.new(_game)
	return null


func _problem_of_action(name, action):
	if not action is Dictionary:
		return "the action '%s' must be the result of global_categorical, categorical, select_entity, continuous or composite" % name
	if action.kind != "composite":
		return null
	if not action.parts is Dictionary or action.parts.is_empty():
		return "the action '%s' needs a dictionary with at least one part, got %s" % [name, action.parts]
	var num_global = 0
	for field in action.parts:
		var part = action.parts[field]
		if not part is Dictionary or part.kind == "composite":
			return "the part '%s' of '%s' must be the result of global_categorical, categorical, select_entity or continuous" % [field, name]
		num_global += 1 if part.kind == "global_categorical" else 0
	if num_global > 0 and num_global < action.parts.size():
		return "either all parts of '%s' or none must be the result of global_categorical" % name
	return null


func _problem_of_relation(name, relation):
	var references = relation.get("references") if relation is Dictionary else null
	if _game.entities.has(name) or not references is Dictionary or references.size() != 2:
		return "the relation '%s' needs references, the entity types of its two entities, by name, and a name that no entity type has: got %s" % [name, relation]
	for type in references.values():
		if not _game.entities.has(type):
			return "the relation '%s' refers to '%s', expected an entity type, which are %s" % [name, type, _game.entities.keys()]
	return null


func _problem_of_connection():
	var address = OS.get_environment("ENTITY_ENV_ADDRESS").split(":")
	if address.size() != 3 or address[0] != "tcp":
		return "ENTITY_ENV_ADDRESS must be tcp:HOST:PORT, got '%s'; start the game with entity-env, and its name with exec+tcp:" % ":".join(address)
	# A host that did not start this program may not be there yet
	var limit_ms = Time.get_ticks_msec() + (0 if OS.get_environment("ENTITY_ENV_TOKEN") else CONNECT_MS)
	while not _connects_to(address[1], int(address[2])):
		if Time.get_ticks_msec() >= limit_ms:
			return "no host at %s" % ":".join(address)
		OS.delay_msec(100)
	_connection.set_no_delay(true)
	return null


func _connects_to(host, port):
	_connection.disconnect_from_host()
	if _connection.connect_to_host(host, port) == OK:
		while _connection.get_status() == StreamPeerTCP.STATUS_CONNECTING:
			OS.delay_msec(1)
			_connection.poll()
	return _connection.get_status() == StreamPeerTCP.STATUS_CONNECTED


# Ends the program with an error of one line, which the host gets, too.
func die(message):
	if _is_over:
		return
	printerr("EntityEnv: %s" % message)
	_send_json(ERROR, {"message": message.left(1000)})
	_quit(1)


func _quit(code):
	_is_over = true
	for copy in _copies:
		if copy.run != null:
			copy.run.leave()
	_resume()
	_connection.disconnect_from_host()
	get_tree().quit(code)


# ------------------------------------------------------------------ messages


func _send(kind, payload):
	var header = bytes_of_ints([MAGIC, kind, payload.size(), 0])
	header.append_array(payload)
	if _connection.put_data(header) != OK:
		_quit(0)  # the host is gone


func _send_json(kind, data):
	_send(kind, Frames.padded(_json_of(data).to_utf8_buffer(), 32))


static func bytes_of_ints(numbers):
	return Frames.bytes_of(PackedInt32Array(numbers))


# `JSON.stringify` would write 1.0 as 1 and shorten numbers.
static func _json_of(value):
	match typeof(value):
		TYPE_BOOL:
			return "true" if value else "false"
		TYPE_INT:
			return str(value)
		TYPE_FLOAT:
			return "%.17f" % value
		TYPE_ARRAY:
			var items = PackedStringArray()
			for item in value:
				items.append(_json_of(item))
			return "[" + ",".join(items) + "]"
		TYPE_DICTIONARY:
			var items = PackedStringArray()
			for key in value:
				items.append(_json_of(key) + ":" + _json_of(value[key]))
			return "{" + ",".join(items) + "}"
	var text = str(value).replace("\\", "\\\\").replace("\"", "\\\"")
	for code in range(1, 32):
		text = text.replace(char(code), "\\u%04x" % code)
	return "\"" + text + "\""


func _with_optional(data, keys):
	for key in keys:
		if _game.has(key):
			data[key] = _game[key]
	return data


# Waits for a message and handles it.
func _receive():
	var first = _connection.get_data(1)
	if first[0] != OK:
		return _quit(0)  # the host is gone
	var header = _connection.get_data(15)
	if header[0] != OK:
		return die("the connection ended within a message")
	_request.data_array = first[1] + header[1]
	var magic = _request.get_u32()
	var kind = _request.get_u32()
	var size = _request.get_u64()
	if magic != MAGIC:
		return die("the host sent something else than a message")
	if kind == CLOSE:
		return _quit(0)
	if kind != START and kind != RESET and kind != ACT or (kind == START) != _copies.is_empty():
		return die("message %s is not due now" % kind)
	if size < 8 or size > _limit(kind):
		return die("message %s has a wrong size: %s bytes" % [kind, size])
	var payload = _connection.get_data(size)
	if payload[0] != OK:
		return die("the connection ended within a message")
	_request.data_array = payload[1]
	match kind:
		START:
			_start(payload[1].get_string_from_utf8())
		RESET:
			_reset()
		ACT:
			_act()
	_resume()


# The largest size of a message of the host.
func _limit(kind):
	if kind == START:
		return MAX_JSON
	if kind == RESET:
		return 8 + 16 * _copies.size()
	return _act_size()


func _start(text):
	if text.split("[").size() + text.split("{").size() > MAX_BRACKETS:
		return die("START is nested too deeply")
	var parsed = JSON.new()
	var error = parsed.parse(text)
	var data = parsed.data
	if error != OK or not data is Dictionary:
		return die("START is not a JSON object")
	var num_envs = data.get("num_envs")
	if not _is_integer(data.get("protocol"), 1, 1) or not _is_integer(num_envs, 1, MAX_ENVS):
		return die("START needs protocol 1 and 1 to %s num_envs, got %s and %s" % [MAX_ENVS, data.get("protocol"), num_envs])
	if not data.get("hold", false) is bool or not data.get("settings", {}) is Dictionary:
		return die("START needs hold as true or false, and settings as an object")
	_hold = data.get("hold", false)
	for name in _settings:
		var value = data.get("settings", {}).get(name, _settings[name])
		if typeof(_settings[name]) == TYPE_INT and typeof(value) == TYPE_FLOAT:  # JSON of Godot has no integers
			value = int(value) if _is_integer(value, -MAX_INT, MAX_INT) else null
		if typeof(value) != typeof(_settings[name]):
			return die("the setting %s must have the type of its default %s" % [name, _settings[name]])
		_settings[name] = value
	var problem = _game.check.call(_settings) if _game.has("check") else null
	if problem != null:
		return die(problem)
	for i in range(int(num_envs)):
		_copies.append(Copy.new(i))
	_send_json(READY, {
		"num_agents": num_agents,
		"spaces": {
			"global_features": _game.get("global_features", []),
			"entities": frames.types,
			"actions": frames.actions,
		},
		"metrics": frames.metrics,
	})


static func _is_integer(value, lowest, highest):
	return typeof(value) in [TYPE_INT, TYPE_FLOAT] and value == floor(value) and value >= lowest and value <= highest


func _reset():
	var count = _request.get_u64()
	var last = -1
	var chosen = []
	if count < 1 or _request.get_size() != 8 + 16 * count:
		return die("RESET has a wrong size")
	for i in range(count):
		var env = _request.get_64()
		if env <= last or env >= _copies.size():
			return die("RESET names the copy %s after %s, of %s copies" % [env, last, _copies.size()])
		last = env
		chosen.append(_copies[env])
		chosen[i].begin(8 + 8 * (count + i))
	_stepping = chosen
	for copy in chosen:
		if copy.run != null:
			copy.run.leave()
		_begin_episode(copy)


func _waiting():
	var waiting = []
	for copy in _copies:
		if copy.run != null:
			for agent in copy.run.agents:
				if agent._row != null:
					waiting.append(agent)
	return waiting


# Size of the `ACT` that is due.
func _act_size():
	var size = 8 * _copies.size()
	var waiting = _waiting()
	for a in range(frames.actions.size()):
		var action = frames.actions[a]
		var numbers = 4 * action.labels.size() if action.kind == "continuous" else 8
		for agent in waiting:
			var actors = agent._row.actors[a]
			size += numbers * actors.size() if actors != null else 0
		size += -size & 7
	return size


func _act():
	if _request.get_size() != _act_size():
		return die("ACT has a wrong size: expected %s bytes, got %s" % [_act_size(), _request.get_size()])
	var waiting = _waiting()
	var answers = []
	for _agent in waiting:
		answers.append({})
	_request.seek(8 * _copies.size())
	for a in range(frames.actions.size()):
		var name = frames.actions[a].name
		for i in range(waiting.size()):
			if waiting[i]._row.actors[a] != null:
				answers[i][name] = _read(waiting[i]._row, a)
				if _is_over:
					return
		_request.seek(_request.get_position() + (-_request.get_position() & 7))
	_stepping = _copies
	for copy in _copies:
		copy.begin(8 * copy.index)
	for i in range(waiting.size()):
		var agent = waiting[i]
		var asked = agent._asked
		if asked is Array:
			agent.answer = []
			for name in asked:
				agent.answer.append(_answer_to(name, answers[i]))
		else:
			agent.answer = _answer_to(asked, answers[i])
		agent._row = null
		if agent._is_awaited:
			agent._is_awaited = false
			resumed.append(agent)
	for copy in _copies:
		if copy.run == null:
			_begin_episode(copy)


# The answer to an action; parts are joined to decisions.
func _answer_to(name, answers):
	if not frames.parts.has(name):
		return answers[name]
	var indices = frames.parts[name]
	var fields = frames.fields[name]
	var first = answers[frames.actions[indices[0]].name]
	var is_global = frames.actions[indices[0]].kind == "global_categorical"
	var all = []
	for i in range(1 if is_global else first.size()):
		var decision = {}
		for p in range(fields.size()):
			var answer = answers[frames.actions[indices[p]].name]
			decision[fields[p]] = answer if is_global else answer[i]
		all.append(decision if is_global or decision[fields[0]] != null else null)
	return all[0] if is_global else all


# Reads the answer of one agent to one action.
func _read(row, a):
	var action = frames.actions[a]
	var count = row.actors[a].size()
	var answer = []
	for i in range(count):
		if action.kind == "continuous":
			var numbers = []
			for _label in action.labels:
				numbers.append(_request.get_float())
			answer.append(numbers)
			continue
		var choice = _request.get_64()
		if choice < 0 or choice >= row.choices[a].size():
			die("ACT has the choice %s for %s, of %s choices" % [choice, action.name, row.choices[a].size()])
			return null
		answer.append(row.choices[a][choice])
	if action.kind == "global_categorical":
		return answer[0]
	if row.is_left_out.has(a):
		var next = 0
		var all = []
		for is_left_out in row.is_left_out[a]:
			all.append(null if is_left_out else answer[next])
			next += 0 if is_left_out else 1
		return all
	return answer


# ------------------------------------------------------------------ steps


func _begin_episode(copy):
	_request.seek(copy.seed_at)
	var episode_seed = _request.get_64()
	copy.flags |= 1
	copy.is_new = true
	var run = Run.new(self, copy)
	copy.run = run
	var first = run.agents[0] if num_agents == 1 else run.agents.duplicate()
	var result = await _game.play.call(first, episode_seed, _settings)
	run.returned(result)


# Continues the games whose answers are there.
func _resume():
	while not resumed.is_empty():
		var agents = resumed
		resumed = []
		for agent in agents:
			agent.emit_signal("completed", agent.answer)


# Whether all copies of the request wait for actions or for a seed; starts the episodes that are due.
func _is_settled():
	_resume()
	if _stepping == null:
		return true
	var settled = true
	for copy in _stepping:
		if copy.run != null and copy.run.has_returned:
			copy.run.leave()
		if copy.run == null and not copy.is_new and not _hold:
			_begin_episode(copy)
			_resume()
		if copy.run != null and copy.run.has_returned:
			copy.run.leave()
		settled = settled and (copy.run == null or copy.run.waits())
	return settled and not _is_over


func _answer():
	var copies = _stepping
	_stepping = null
	var flags = []
	var are_asked = []
	var rows = []
	var ends = []  # row, flags, observation, message
	for copy in copies:
		flags.append(copy.flags + (2 if copy.run == null else 0))
		for i in range(num_agents):
			for end in copy.ends:
				if end[0] == i:
					ends.append([rows.size(), end[1], end[2], end[3]])
			var row = copy.run.agents[i]._row if copy.run != null else null
			rows.append(row)
			are_asked.append(0 if row == null else 1)
	var failures = []
	for end in ends:
		if end[1] & FAILED:
			failures.append({"row": end[0], "message": end[3].left(1000)})
	var text = Frames.padded(_json_of(failures).to_utf8_buffer(), 32) if failures else PackedByteArray()
	var payload = bytes_of_ints([ends.size(), 0, text.size(), 0])
	payload.append_array(Frames.padded(PackedByteArray(flags)))
	payload.append_array(Frames.padded(PackedByteArray(are_asked)))
	payload.append_array(_scores_of(rows))
	payload.append_array(frames.write(rows))
	if ends:
		payload.append_array(_bytes_of_ends(ends))
	payload.append_array(text)
	_send(STEP, payload)


func _bytes_of_ends(ends):
	var rows = []
	var flags = []
	var last_rows = []
	for end in ends:
		for number in [end[0], 0]:
			rows.append(number)
		for number in [end[1], 0]:
			flags.append(number)
		last_rows.append(end[2])
	var bytes = bytes_of_ints(rows + flags)
	bytes.append_array(_scores_of(last_rows))
	bytes.append_array(frames.write(last_rows))
	return bytes


# Scores and metrics.
func _scores_of(rows):
	var numbers = StreamPeerBuffer.new()
	for row in rows:
		numbers.put_double(0.0 if row == null else row.score)
	for m in range(frames.metrics.size()):
		for row in rows:
			numbers.put_double(NAN if row == null else row.metrics[m])
	return numbers.data_array
