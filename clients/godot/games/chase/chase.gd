# Chase: a body reaches as many targets as it can, and slides along the rocks in its way.
#
# An ordinary scene with physics: `arena.tscn` moves by itself, and `play` decides every few frames.
extends Node

const EntityEnv = preload("res://addons/entity_env/entity_env.gd")
const Arena = preload("res://games/chase/arena.tscn")
const DIRECTIONS = {"UP": Vector2.UP, "DOWN": Vector2.DOWN, "LEFT": Vector2.LEFT, "RIGHT": Vector2.RIGHT}
const FRAMES_PER_STEP = 6


func _ready():
	add_child(EntityEnv.new({
		"name": "chase",
		"play": funcref(self, "play"),
		"entities": {"Chaser": ["x", "y"], "Target": ["x", "y"], "Rock": ["x", "y"]},
		"actions": {"Move": EntityEnv.global_categorical(DIRECTIONS.keys())},
		"settings": {"num_rocks": 3, "max_steps": 60},
	}))


func play(agent, episode_seed, settings):
	var view = Viewport.new()  # with its own physics, so copies of the game do not collide
	view.world_2d = World2D.new()
	add_child(view)
	var arena = Arena.instance()
	view.add_child(arena)
	arena.begin(EntityEnv.SplitMix64.new(episode_seed), settings.num_rocks)
	yield(get_tree(), "physics_frame")  # new nodes take part from the next frame on
	for _step in range(settings.max_steps):
		var move = yield(agent.act(observe(arena), "Move"), "completed")
		if move == null:
			break
		arena.direction = DIRECTIONS[move]
		arena.is_moving = true
		for _frame in range(FRAMES_PER_STEP):
			yield(get_tree(), "physics_frame")
		arena.is_moving = false  # other copies may need more frames until they ask
	agent.game_over(observe(arena), true)
	view.queue_free()


func observe(arena):
	var obs = EntityEnv.Obs.new(arena.num_reached)
	obs.entities("Chaser", [arena.place_of(arena.get_node("Chaser"))])
	obs.entities("Target", [arena.place_of(arena.get_node("Target"))])
	for rock in arena.get_node("Rocks").get_children():
		obs.entities("Rock", [arena.place_of(rock)])
	return obs
