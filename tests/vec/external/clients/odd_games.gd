# Games for tests of the client for Godot: `--odd=kinds` has actions of all kinds, and the other
# words are faults.
extends SceneTree

const EntityEnv = preload("res://addons/entity_env/entity_env.gd")
const Obs = EntityEnv.Obs
const KINDS = ["Flag", "Turn", "Steer", "SelectRock"]
const FLAGS = ["LOW", "MID", "HIGH"]
const TURNS = ["BACK", "ON"]

var word = ""
var number_of_play = 0


func _initialize():
	for argument in OS.get_cmdline_args():
		if argument.begins_with("--odd="):
			word = argument.substr(6)
	var game = faults()
	if word == "kinds":
		game = kinds()
	elif word == "parts":
		game = parts()
	elif word.begins_with("road"):
		game = roads()
	root.add_child(EntityEnv.new(game))


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


# ------------------------------------------------------------------ decisions in several parts


func parts():
	return {
		"name": "parts",
		"play": funcref(self, "play_parts"),
		"entities": {"Car": ["x"], "Rock": ["size"]},
		"actions": {
			"Signal": EntityEnv.composite({"turn": EntityEnv.global_categorical(TURNS), "flag": EntityEnv.global_categorical(FLAGS)}),
			"Haul": EntityEnv.composite({
				"rock": EntityEnv.select_entity("Rock"),
				"load": EntityEnv.categorical(FLAGS),
				"is_fast": EntityEnv.categorical(["False", "True"]),
				"weight": EntityEnv.continuous({"weight": [0, 2]}),
			}),
		},
	}


func draw_things(random, feature):
	var things = []
	for _i in range(1 + random.below(3)):
		things.append({feature: random.uniform()})
	return things


func play_parts(agent, episode_seed, _settings):
	var random = EntityEnv.SplitMix64.new(episode_seed)
	var score = 0.0
	for _turn in range(4):
		var cars = draw_things(random, "x")
		var rocks = draw_things(random, "size")
		var obs = Obs.new(score).actors("Car", cars, ["Haul"]).entities("Rock", rocks)
		if random.below(2):
			var near = [draw_mask(random, rocks.size())]
			for _i in range(cars.size() - 1):
				var own = []
				for _rock in rocks:
					own.append(random.below(2) == 1)
				near.append(own)
			obs.mask("Haul.rock", near)
		var loads = []
		for _car in cars:
			loads.append(draw_masks(random, rocks.size(), 3))
		obs.mask("Haul.load", loads, "Haul.rock")
		if random.below(2):
			obs.mask("Signal.flag", draw_masks(random, 2, 3), "Signal.turn")
		var answers = yield(agent.act(obs, ["Signal", "Haul"]), "completed")
		if answers == null:
			return
		score += 3 * TURNS.find(answers[0].turn) + FLAGS.find(answers[0].flag)
		for i in range(cars.size()):
			var haul = answers[1][i]
			if haul != null:
				var number = 8 * rocks.find(haul.rock) + 100 * FLAGS.find(haul.load) + 1000 * int(haul.is_fast == "True")
				score += (i + 1) * number + floor(16 * haul.weight[0]) / 16
	agent.game_over(Obs.new(score).entities("Rock", [{"size": 0.5}]))


# ------------------------------------------------------------------ relations


func roads():
	return {
		"name": "roads",
		"play": funcref(self, "play_roads") if word == "roads" else funcref(self, "play_wrong_roads"),
		"entities": {"Car": ["x"], "Rock": ["size"]},
		"relations": {
			"Gap": {"references": {"one": "Rock", "other": "Rock"}},
			"Road": {"references": {"start": "Car", "end": "Road" if word == "road_to_road" else "Rock"}, "features": ["hours"]},
		},
		"actions": {
			"SelectRoad": EntityEnv.select_entity("Road"),
			"Trip": EntityEnv.composite({
				"flag": EntityEnv.global_categorical(FLAGS) if word == "road_mixed" else EntityEnv.categorical(FLAGS),
				"road": EntityEnv.select_entity("Road"),
				"speed": EntityEnv.categorical(FLAGS),
			}),
		},
	}


func draw_open(random, count):
	var open = []
	for i in range(count):
		open.append(random.below(4) > 0 or i == 0)
	return open


func draw_opens(random, num_actors, count):
	var opens = []
	for _i in range(num_actors):
		opens.append(draw_open(random, count))
	return opens


func look_at_roads(random, score):
	var cars = draw_things(random, "x")
	var rocks = draw_things(random, "size")
	var found = [{"start": 0, "end": 0, "hours": random.uniform()}]
	for end in range(rocks.size()):
		for start in range(cars.size()):
			for _i in range(random.below(3)):
				found.append({"start": start, "end": end, "hours": random.uniform()})
	var gaps = []
	for one in range(rocks.size()):
		for other in range(rocks.size()):
			if random.below(2):
				gaps.append([one, other])
	var obs = Obs.new(score).entities("Road", found).entities("Gap", gaps).entities("Rock", rocks).actors("Car", cars)
	if random.below(2):
		obs.mask("SelectRoad", draw_opens(random, cars.size(), found.size()))
	elif random.below(2):
		obs.mask("SelectRoad", draw_open(random, found.size()))
	if random.below(2):
		var legal = []
		for c in range(cars.size()):
			legal.append(draw_opens(random, 3, found.size()))
			for flags in legal[c]:
				for i in range(found.size()):
					flags[i] = flags[i] or found[i].start == c
		obs.mask("Trip.road", legal, "Trip.flag")
	if random.below(2):
		var speed = []
		for _car in cars:
			speed.append(draw_masks(random, found.size(), 3))
		obs.mask("Trip.speed", speed, "Trip.road")
	var visible = draw_open(random, found.size())
	if visible.has(false):
		obs.visible("Road", visible)
	return obs


func play_roads(agent, episode_seed, _settings):
	var random = EntityEnv.SplitMix64.new(episode_seed)
	var score = 0.0
	for _turn in range(4):
		var obs = look_at_roads(random, score)
		var shown = obs.groups["Road"]
		var answers = yield(agent.act(obs, ["SelectRoad", "Trip"]), "completed")
		if answers == null:
			return
		for i in range(answers[0].size()):
			if answers[0][i] != null:
				score += (i + 1) * (1 + shown.find(answers[0][i]))
			var trip = answers[1][i]
			if trip != null:
				var number = 40 * FLAGS.find(trip.flag) + 200 * FLAGS.find(trip.speed)
				score += (i + 1) * (number + 1000 * shown.find(trip.road))
	var last = look_at_roads(random, score)
	agent.game_over(last, random.below(2) == 1)


# Shows two roads of two cars, with a fault, and ends.
func play_wrong_roads(agent, _seed, _settings):
	var shown = [[0, 0, 1], [1, 0, 1]]
	if word == "road_start":
		shown[1][0] = 2
	if word == "road_half":
		shown[1][1] = 0.5
	var obs = Obs.new(0).entities("Rock", [{"size": 1}]).actors("Car", [{"x": 1}, {"x": 2}])
	if word == "road_acts":
		obs.actors("Road", shown)
	else:
		obs.entities("Road", shown)
	if word == "road_of_rock":
		obs.actors("Rock", [{"size": 2}])
	if word == "road_given":
		obs.mask("Trip.speed", [], "Trip.flag")
	if word == "road_lists":
		obs.mask("Trip.speed", [[[1, 1, 1]], [[1, 1, 1]]], "Trip.road")
	if word == "road_flags":
		obs.mask("Trip.speed", [[[1, 1, 1], [1]], [[1, 1, 1], [1, 1, 1]]], "Trip.road")
	if word == "road_none":
		obs.mask("SelectRoad", [true])
	var answer = yield(agent.act(obs, ["Trip.road"] if word == "road_part" else ["SelectRoad", "Trip"]), "completed")
	if answer != null:
		agent.game_over(obs)


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
