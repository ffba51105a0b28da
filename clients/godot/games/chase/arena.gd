extends Node2D

const SIZE = 400.0  # pixels
const SPEED = 300.0  # pixels per second
const REACH = 30.0
const Rock = preload("res://games/chase/rock.tscn")

var direction = Vector2.ZERO
var is_moving = false
var num_reached = 0
var random


# Starts with the body in the middle, and rocks and a target at random places.
func begin(generator, num_rocks):
	random = generator
	$Chaser.position = Vector2(SIZE, SIZE) / 2
	for _i in range(num_rocks):
		var rock = Rock.instance()
		rock.position = random_place()
		while rock.position.distance_to($Chaser.position) < 60:
			rock.position = random_place()
		$Rocks.add_child(rock)
	$Target.position = random_place()


func _physics_process(_delta):
	if not is_moving:
		return
	$Chaser.move_and_slide(direction * SPEED)
	$Chaser.position.x = clamp($Chaser.position.x, 0, SIZE)
	$Chaser.position.y = clamp($Chaser.position.y, 0, SIZE)
	if $Chaser.position.distance_to($Target.position) < REACH:
		num_reached += 1
		$Target.position = random_place()


func random_place():
	return Vector2(random.uniform(), random.uniform()) * SIZE


# A node's place from -1 to 1.
func place_of(node):
	return node.position / (SIZE / 2) - Vector2.ONE
