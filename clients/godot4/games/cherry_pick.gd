# Cherry pick: one actor selects an entity in every step. The rules are those of
# entity_env.games.cherry_pick.
extends SceneTree

const EntityEnv = preload("res://addons/entity_env/entity_env.gd")


func _initialize():
	root.add_child(EntityEnv.new({
		"name": "cherry_pick",
		"play": play,
		"entities": {"Picker": [], "Cherry": ["quality"]},
		"actions": {"SelectCherry": EntityEnv.select_entity("Cherry")},
		"settings": {"num_good": 8, "num_bad": 8},
		"check": check,
	}))


func check(settings):
	if min(settings.num_good, settings.num_bad) < 1:
		return "cherry_pick: num_good and num_bad must be at least 1"


func play(agent, episode_seed, settings):
	var random = EntityEnv.SplitMix64.new(episode_seed)
	var cherries = cherries_of(settings.num_good, 1, random) + cherries_of(settings.num_bad, -1, random)
	random.shuffle(cherries)
	var score = 0.0
	for _i in range(settings.num_good):
		var obs = EntityEnv.Obs.new(score).actors("Picker", [{}]).entities("Cherry", cherries)
		var picked = await agent.act(obs, "SelectCherry")
		if picked == null:
			return
		cherries.erase(picked[0])
		score += picked[0].quality
	agent.game_over(EntityEnv.Obs.new(score).actors("Picker", [{}]).entities("Cherry", cherries))


# Cherries with qualities that add up to `total`.
func cherries_of(count, total, random):
	var weights = []
	var sum = 0.0
	for i in range(count):
		weights.append(0.1 + (1 - 0.1) * random.uniform())
		sum += weights[i]
	var cherries = []
	for weight in weights:
		cherries.append({"quality": total * weight / sum})
	return cherries
