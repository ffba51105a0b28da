# Multi-snake: snakes of different colors on one board, each with its own move. The rules are those
# of entity_env.games.multi_snake.
extends SceneTree

const EntityEnv = preload("res://addons/entity_env/entity_env.gd")
const STEPS = {"UP": [0, 1], "DOWN": [0, -1], "LEFT": [-1, 0], "RIGHT": [1, 0]}


func _initialize():
	root.add_child(EntityEnv.new({
		"name": "multi_snake",
		"play": play,
		"entities": {"Head": ["x", "y", "color"], "Segment": ["x", "y", "color"], "Food": ["x", "y", "color"]},
		"global_features": ["step"],
		"actions": {"Move": EntityEnv.categorical(STEPS.keys())},
		"settings": {"board_size": 10, "num_snakes": 2, "max_snake_length": 11, "max_step": 180},
		"check": check,
	}))


func check(settings):
	if settings.num_snakes < 1 or settings.max_step < 1 or settings.max_snake_length < 2:
		return "multi_snake: num_snakes and max_step must be at least 1, max_snake_length 2"
	if settings.board_size * settings.board_size < settings.num_snakes * (settings.max_snake_length + 1):
		return "multi_snake: the board is too small"


func play(agent, episode_seed, settings):
	var board = Board.new(episode_seed, settings)
	var goes_on = true
	while goes_on and board.step < settings.max_step:
		var moves = await agent.act(board.observe(), "Move")
		if moves == null:
			return
		goes_on = board.move(moves)
	agent.game_over(board.observe(), goes_on)


class Board:
	var size
	var max_segments
	var max_eaten
	var random
	var step = 0
	var num_eaten = 0
	var blocked = {}  # by cell
	var food_at = {}  # colors, by cell
	var heads = []
	var bodies = []  # tail first
	var segments = []  # of all bodies; lists are shared with `bodies`
	var food = []

	func _init(episode_seed, settings):
		size = settings.board_size
		max_segments = settings.max_snake_length - 1
		max_eaten = max_segments * settings.num_snakes
		random = EntityEnv.SplitMix64.new(episode_seed)
		for color in range(settings.num_snakes):
			var cell = free_cell()
			blocked[cell] = true
			heads.append([cell / size, cell % size, color])
			bodies.append([])
		for color in range(settings.num_snakes):
			food.append(null)
			place(color)

	func observe():
		return EntityEnv.Obs.new(num_eaten / float(max_eaten)).globals([step]) \
			.actors("Head", heads).entities("Segment", segments).entities("Food", food)

	func free_cell():
		while true:
			var cell = random.below(size * size)
			if not blocked.has(cell) and not food_at.has(cell):
				return cell

	func place(color):
		var cell = free_cell()
		food_at[cell] = color
		food[color] = [cell / size, cell % size, color]

	# Moves the snakes; true if the game continues.
	func move(moves):
		step += 1
		var eaten = []
		var is_fine = true
		for color in range(heads.size()):
			var head = heads[color]
			var x = head[0] + STEPS[moves[color]][0]
			var y = head[1] + STEPS[moves[color]][1]
			var cell = x * size + y
			var is_inside = x >= 0 and y >= 0 and x < size and y < size
			var has_food = is_inside and food_at.has(cell)
			if not is_inside or blocked.has(cell) or has_food and food_at[cell] != color:
				is_fine = false
				continue
			if has_food:
				food_at.erase(cell)
				eaten.append(color)
			if has_food and bodies[color].size() < max_segments:
				bodies[color].append(head.duplicate())
				segments.append(bodies[color][-1])
				num_eaten += 1
			else:
				follow(head, bodies[color])
			blocked[cell] = true
			head[0] = x
			head[1] = y
		for color in eaten:  # after all moves, so no snake runs into new food in this step
			place(color)
		return is_fine and num_eaten < max_eaten

	# Moves the tail segment to the cell of the head, which frees the tail's cell.
	func follow(head, body):
		var tail = body.pop_front() if body else head
		blocked.erase(tail[0] * size + tail[1])
		if tail != head:
			tail[0] = head[0]
			tail[1] = head[1]
			body.append(tail)
