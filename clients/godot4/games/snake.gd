# Snake: one snake on a board. The rules are those of entity_env.games.snake.
extends SceneTree

const EntityEnv = preload("res://addons/entity_env/entity_env.gd")
const STEPS = {"UP": [0, 1], "DOWN": [0, -1], "LEFT": [-1, 0], "RIGHT": [1, 0]}


func _initialize():
	root.add_child(EntityEnv.new({
		"name": "snake",
		"play": play,
		"entities": {"Head": ["x", "y"], "Segment": ["x", "y"], "Food": ["x", "y"]},
		"actions": {"Move": EntityEnv.global_categorical(STEPS.keys())},
		"settings": {"board_size": 10},
		"check": check,
	}))


func check(settings):
	return "snake: board_size must be at least 2" if settings.board_size < 2 else null


func play(agent, episode_seed, settings):
	var random = EntityEnv.SplitMix64.new(episode_seed)
	var size = settings.board_size
	var first = random.below(size * size)
	var head = [first / size, first % size]
	var body = []  # tail first
	var food = new_food(size, head, body, random)
	var steps_since_food = 0
	while true:
		var obs = EntityEnv.Obs.new(body.size())
		obs.entities("Head", [head]).entities("Segment", body).entities("Food", food)
		if food.is_empty() or steps_since_food == size * size:
			return agent.game_over(obs, not food.is_empty())
		var move = await agent.act(obs, "Move")
		if move == null:
			return
		var to = [head[0] + STEPS[move][0], head[1] + STEPS[move][1]]
		var is_inside = to[0] >= 0 and to[1] >= 0 and to[0] < size and to[1] < size
		if not is_inside or body.find(to, 1) >= 0:  # the tail leaves its cell
			return agent.game_over(obs)
		body.append(head)
		head = to
		if to == food[0]:
			food = new_food(size, head, body, random)
			steps_since_food = 0
		else:
			body.pop_front()
			steps_since_food += 1


func new_food(size, head, body, random):
	var taken = {head[0] * size + head[1]: true}
	for segment in body:
		taken[segment[0] * size + segment[1]] = true
	var left = size * size - taken.size()
	if not left:
		return []
	left = random.below(left)
	for cell in range(size * size):
		if not taken.has(cell):
			if not left:
				return [[cell / size, cell % size]]
			left -= 1
