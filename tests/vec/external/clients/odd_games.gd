# Games for tests of the client for Godot: `--odd=kinds` has actions of all kinds, and the other
# words are faults.
extends SceneTree

const EntityEnv = preload("res://addons/entity_env/entity_env.gd")
const Obs = EntityEnv.Obs
const KINDS = ["Flag", "Turn", "Steer", "SelectRock"]

var word = ""
var number_of_play = 0


func _initialize():
	for argument in OS.get_cmdline_args():
		if argument.begins_with("--odd="):
			word = argument.substr(6)
	root.add_child(EntityEnv.new(kinds() if word == "kinds" else faults()))


func kinds():
	return {
		"name": "odd",
		"version": "2",
		"doc": "Rules with \"quotes\" and é.\n",
		"num_agents": 2,
		"play": funcref(self, "play_kinds"),
		"entities": {"Car": ["x"], "Rock": ["size"]},
		"global_features": ["wind"],
		"actions": {
			"Flag": EntityEnv.global_categorical(["LOW", "MID", "HIGH"]),
			"Turn": EntityEnv.categorical(["BACK", "ON"]),
			"Steer": EntityEnv.continuous({"wheel": [-1, 1], "gas": [0, 2]}),
			"SelectRock": EntityEnv.select_entity("Rock"),
		},
		"metrics": ["rocks"],
	}


func play_kinds(agents, episode_seed, _settings):
	var random = EntityEnv.SplitMix64.new(episode_seed)
	var scores = [0.0, 0.0]
	var left = []
	for _agent in agents:
		left.append(1 + random.below(4))
	for turn in range(left.max() + 1):
		var asked = []
		for i in range(2):
			if left[i] < turn:
				continue
			var obs = look(random, scores[i])
			if left[i] == turn:
				agents[i].game_over(obs, random.below(2) == 1)
			else:
				agents[i].act_async(obs, KINDS)
				asked.append([i, obs.groups["Rock"]])
		for item in asked:
			var answers = yield(agents[item[0]].get_answer(), "completed")
			if answers == null:
				return
			scores[item[0]] += worth(answers, item[1])


func draw_mask(random, count):
	var allowed = []
	for _i in range(count):
		allowed.append(random.below(2) == 1)
	allowed[random.below(count)] = true
	return allowed


func draw_masks(random, num_actors, count):
	var masks = []
	for _i in range(num_actors):
		masks.append(draw_mask(random, count))
	return masks


func look(random, score):
	var obs = Obs.new(score).globals([random.uniform()])
	var cars = []
	for _i in range(1 + random.below(3)):
		cars.append({"x": random.uniform()})
	var rocks = []
	for _i in range(1 + random.below(3)):
		rocks.append({"size": random.uniform()})
	obs.actors("Car", cars, ["Turn", "SelectRock"]).actors("Rock", rocks, ["Steer"])
	if random.below(2):
		var visible = []
		for _rock in rocks:
			visible.append(random.below(2) == 1)
		if visible.has(false):  # flags without effect would be in frames of Python only
			obs.visible("Rock", visible)
	if random.below(2):
		obs.metric("rocks", rocks.size())
	var has_mask = [random.below(2), random.below(2), random.below(2)]
	if has_mask[0]:
		obs.mask("Flag", draw_mask(random, 3))
	if has_mask[1]:
		obs.mask("Turn", draw_masks(random, cars.size(), 2))
	if has_mask[2]:
		obs.mask("SelectRock", draw_masks(random, cars.size(), rocks.size()))
	return obs


func worth(answers, rocks):
	var found = float(["LOW", "MID", "HIGH"].find(answers[0]))
	for i in range(answers[1].size()):
		found += (i + 1) * (["BACK", "ON"].find(answers[1][i]) + 1) + 8 * (i + 1) * rocks.find(answers[3][i])
	for numbers in answers[2]:
		found += floor(16 * numbers[0]) / 16 + floor(16 * numbers[1]) / 8
	return found


# ------------------------------------------------------------------ faults


func faults():
	return {
		"name": "odd",
		"num_agents": 2,
		"play": funcref(self, "play_faults"),
		"entities": {"Dot": ["x"], "Other": []},
		"actions": {"Move": EntityEnv.categorical(["LEFT", "RIGHT"]), "SelectDot": EntityEnv.select_entity("Dot")},
		"settings": {"on": true, "count": 3, "ratio": 0.5, "text": "a\\\"b\u0001é"},
		"check": funcref(self, "check"),
	}


func check(settings):
	if word == "settings" and settings.hash() != faults().settings.hash():
		return "got %s" % settings


func dot():
	return Obs.new(0).actors("Dot", [[0]])


# Each agent acts twice in turn, then the episode ends.
func play_faults(agents, _seed, _settings):
	number_of_play += 1
	if word == "fails_at_once":
		return agents[0].fail("no wheels")
	for turn in range(4):
		var agent = agents[turn % 2]
		var answer = yield(agent.act(dot(), "Move"), "completed")
		while word == "deaf" and turn == 1:
			yield(agent.act(dot(), "Move"), "completed")
		if answer == null:
			return
		if word == "frame":
			yield(self, "physics_frame")
		if turn == 2:
			if word == "returns":
				return
			if word == "script_error":
				print(agents[7])
			call_wrongly(agents, agent)
			if word == "fails":
				agents[1].game_over(dot())
				return agents[0].fail("a \"wheel\"\n\tcame off: é")
	for agent in agents:
		agent.game_over(dot().entities("Other", [{}]))


func call_wrongly(agents, agent):
	match word:
		"type":
			agent.act(Obs.new().entities("Car", []), "Move")
		"action":
			agent.act(dot(), "Jump")
		"number":
			agent.act(Obs.new().actors("Dot", [["far"]]), "Move")
		"missing":
			agent.act(Obs.new().actors("Dot", [{"y": 1}]), "Move")
		"width":
			agent.act(Obs.new().actors("Dot", [[1, 2]]), "Move")
		"score":
			agent.act(Obs.new(NAN).actors("Dot", [[1]]), "Move")
		"mask":
			agent.act(dot().mask("Move", [[true]]), "Move")
		"mask_count":
			agent.act(dot().mask("SelectDot", []), "SelectDot")
		"visible":
			agent.act(dot().visible("Dot", [true, true]), "Move")
		"twice":
			agent.act(dot(), "Move")
			agent.act(dot(), "Move")
		"ended":
			agent.game_over()
			agent.act(dot(), "Move")
		"end":
			agent.game_over()
			agent.game_over()
		"all_ended":
			agents[0].game_over()
			agents[1].game_over()
			agent.game_over()
