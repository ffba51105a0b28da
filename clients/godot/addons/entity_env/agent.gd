# Chooses the actions of one player in one episode.
#
#     var move = yield(agent.act(obs, "Move"), "completed")
#
# waits for a label. For actors the answer is a list with one item per actor: labels, selected
# entities or lists of numbers; for a list of actions, it is a list of answers. A decision in several
# parts is a dictionary; that of an actor is null if it has no choice. If the answer to `act` is
# null, the game must return.
extends Reference

signal completed(answer)

var index  # among the agents of this copy of the game
var env  # number of this copy
var answer  # to the last question

var _run
var _row = null  # observation that waits for an answer
var _asked = []
var _is_awaited = false
var _is_playing = false
var _has_ended = false


func _init(run, agent_index, copy_index):
	_run = run
	index = agent_index
	env = copy_index


# Asks for an action, or for a list of actions.
func act(obs, actions):
	act_async(obs, actions)
	return get_answer()


# Asks without waiting, so several agents can decide at the same time: ask each of them, then
# `yield(agent.get_answer(), "completed")` for each of them.
func act_async(obs, actions):
	answer = null
	if not _run.is_current:
		return
	if _has_ended:
		return _run.fail("act was called after game_over")
	if _row != null:
		return _run.fail("act was called before the last answer: use yield(agent.act(...), \"completed\")")
	var asked = actions if actions is Array else [actions]
	var row = _run.server.frames.encode(obs, asked)
	if row is String:
		return _run.fail(row)
	_row = row
	_asked = actions
	_is_playing = true


func get_answer():
	if _row == null:
		_run.resume_later(self)
	else:
		_is_awaited = true
	return self


# Ends the agent's episode; `truncated` if it did not end by the rules.
func game_over(obs = null, truncated = false):
	if not _run.is_current:
		return
	if _has_ended:
		return _run.fail("game_over was called twice")
	if _row != null:
		return _run.fail("game_over was called before the last answer")
	var row = null
	if obs != null:
		row = _run.server.frames.encode(obs, _actions() if truncated else [], true)
		if row is String:
			return _run.fail(row)
	_has_ended = true
	_is_playing = false
	_run.end(self, 2 if truncated else 1, row)


# Ends the episode as failed, with a reason. The game must return.
func fail(message):
	_run.fail(message)


func _actions():
	return _asked if _asked is Array else [_asked]
