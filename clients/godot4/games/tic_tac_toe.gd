# Tic-tac-toe: two agents that take turns. The rules are those of entity_env.games.tic_tac_toe.
extends SceneTree

const EntityEnv = preload("res://addons/entity_env/entity_env.gd")
const SQUARES = ["A1", "B1", "C1", "A2", "B2", "C2", "A3", "B3", "C3"]
const LINES = [
	["A1", "B1", "C1"], ["A2", "B2", "C2"], ["A3", "B3", "C3"],
	["A1", "A2", "A3"], ["B1", "B2", "B3"], ["C1", "C2", "C3"],
	["A1", "B2", "C3"], ["A3", "B2", "C1"],
]


func _initialize():
	root.add_child(EntityEnv.new({
		"name": "tic_tac_toe",
		"play": play,
		"num_agents": 2,
		"entities": {"Empty": ["x", "y"], "Mine": ["x", "y"], "Theirs": ["x", "y"]},
		"actions": {"Square": EntityEnv.global_categorical(SQUARES)},
	}))


func play(agents, episode_seed, _settings):
	var owners = {}  # in the order of the moves
	var turn = EntityEnv.SplitMix64.new(episode_seed).below(2)
	while not has_won(owners, 1 - turn) and owners.size() < SQUARES.size():
		var square = await agents[turn].act(observe(owners, turn), "Square")
		if square == null:
			return
		owners[square] = turn
		turn = 1 - turn
	for i in range(2):
		agents[i].game_over(observe(owners, i, int(has_won(owners, i)) - int(has_won(owners, 1 - i))))


func has_won(owners, agent):
	for line in LINES:
		if owners.get(line[0]) == agent and owners.get(line[1]) == agent and owners.get(line[2]) == agent:
			return true
	return false


func observe(owners, agent, score = 0):
	var found = {"Empty": [], "Mine": [], "Theirs": []}
	var is_free = []
	for square in SQUARES:
		is_free.append(not owners.has(square))
		if is_free[-1]:
			found["Empty"].append(place(square))
	for square in owners:
		found["Mine" if owners[square] == agent else "Theirs"].append(place(square))
	var obs = EntityEnv.Obs.new(score).mask("Square", is_free)
	for name in found:
		obs.entities(name, found[name])
	return obs


func place(square):
	return ["ABC".find(square[0]), int(square[1]) - 1]
