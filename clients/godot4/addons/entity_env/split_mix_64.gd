# SplitMix64: equal seeds give equal numbers in every language.
extends RefCounted

# Constants and masks are signed, because integers of GDScript are.
const STEP = -7046029254386353131  # 0x9E3779B97F4A7C15
const FIRST = -4658895280553007687  # 0xBF58476D1CE4E5B9
const SECOND = -7723592293110705685  # 0x94D049BB133111EB

var state


func _init(start):
	state = start


# The next 64 bits, as a signed integer.
func draw():
	state += STEP
	var z = state
	z = (z ^ (z >> 30 & 0x3FFFFFFFF)) * FIRST
	z = (z ^ (z >> 27 & 0x1FFFFFFFFF)) * SECOND
	return z ^ (z >> 31 & 0x1FFFFFFFF)


# An integer from 0 to `limit` - 1, with `limit` at most 2^32.
func below(limit):
	return (draw() >> 32 & 0xFFFFFFFF) * limit >> 32 & 0xFFFFFFFF


func choice(items):
	return items[below(items.size())]


# A number from 0 to 1, exclusive.
func uniform():
	return (draw() >> 11 & 0x1FFFFFFFFFFFFF) / 9007199254740992.0


func shuffle(items):
	for i in range(items.size() - 1, 0, -1):
		var j = below(i + 1)
		var item = items[i]
		items[i] = items[j]
		items[j] = item
